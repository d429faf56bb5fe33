import { defineConfig } from '@playwright/test';
import { CONTEXT, type ILabOptions } from './lab';

/** Real JupyterLab, real hub, real training; Chromium of the machine. */
export default defineConfig<object, ILabOptions>({
  testDir: 'tests',
  outputDir: 'test-results',
  timeout: 90_000,
  expect: { timeout: 15_000 },
  // Each has a JupyterLab of its own, and mostly waits for it.
  workers: 2,
  // JupyterLab itself now and then swallows a key or a click while it settles; what needed a second try is reported.
  retries: 1,
  fullyParallel: false,
  reporter: [['list']],
  use: {
    ...CONTEXT,
    // A trace slows every step by a third; the second try of what failed has one.
    trace: 'on-first-retry',
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
    }
  },
  projects: [
    { name: 'deep base url', use: { basePath: '/team/lab/' } },
    { name: 'root', use: { basePath: '/' }, grep: /@everywhere/ }
  ]
});
