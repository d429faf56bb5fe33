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
  retries: 0,
  fullyParallel: false,
  reporter: [['list']],
  use: {
    ...CONTEXT,
    // One slows every step by a third: `--trace on` where something fails.
    trace: 'off',
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu']
    }
  },
  projects: [
    { name: 'deep base url', use: { basePath: '/team/lab/' } },
    // Few tests, for which a second JupyterLab would take longer to start than they run.
    { name: 'root', use: { basePath: '/' }, grep: /@everywhere/, workers: 1 }
  ]
});
