import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: '.',
  testMatch: '*.spec.ts',
  timeout: 30_000,
  // A page mostly waits for its next frame.
  workers: 3,
  reporter: 'line',
  outputDir: '../test-results/harness',
  use: {
    viewport: { width: 1000, height: 700 },
    launchOptions: {
      executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
    }
  }
});
