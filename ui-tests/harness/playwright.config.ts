import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: '.',
  testMatch: '*.spec.ts',
  timeout: 30_000,
  // A page mostly waits for its next frame.
  workers: 3,
  // As for the other suites: what needed a second try on a machine that others use too is named.
  retries: 1,
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
