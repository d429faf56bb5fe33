import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: '.',
  testMatch: '*.spec.ts',
  globalSetup: './serve.ts',
  timeout: 60_000,
  expect: { timeout: 15_000 },
  workers: 2,
  // Whoever is free takes the next test: what they share is made once for all of them.
  fullyParallel: true,
  retries: 0,
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
