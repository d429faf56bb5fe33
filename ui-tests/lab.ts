import { expect, test as base, type Page } from '@playwright/test';
import { randomBytes } from 'crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'fs';
import { createServer, type AddressInfo } from 'net';
import { tmpdir } from 'os';
import { join, resolve } from 'path';
import { start, until, type IProcess } from './processes';

const ROOT = resolve(__dirname, '..');
const PYTHON = join(ROOT, '.venv/bin/python');

/** Options of a project. */
export interface ILabOptions {
  /** The server's base URL path. */
  basePath: string;
}

/** A running JupyterLab with a folder of its own. */
export interface ILab {
  /** Base URL with its trailing slash. */
  readonly url: string;
  /** The server's root folder. */
  readonly folder: string;
  readonly token: string;
  /** Start a training run that is recorded below the server's root. */
  train(name: string, options?: { traced?: boolean; rate?: number }): Promise<ITraining>;
}

/** A running training process. */
export interface ITraining {
  readonly id: string;
  readonly name: string;
  readonly process: IProcess;
  /** Id of the hub's process. */
  readonly hub: number;
  /** Make one activation non-finite. */
  spoil(): void;
}

/** A page that is logged in, with JupyterLab open. */
export interface ILabPage {
  readonly page: Page;
  readonly lab: ILab;
}

/** Tests with a real JupyterLab per worker and project. */
export const test = base.extend<{ open: (path?: string) => Promise<Page> }, { lab: ILab } & ILabOptions>({
  basePath: ['/', { option: true, scope: 'worker' }],
  lab: [
    async ({ basePath }, use) => {
      const home = mkdtempSync(join(tmpdir(), 'megalens-ui-'));
      const folder = join(home, 'root');
      const runtime = join(home, 'hubs');
      mkdirSync(join(folder, 'megalens-runs'), { recursive: true });
      mkdirSync(runtime, { mode: 0o700 });
      const settings = join(home, 'settings/@jupyterlab/apputils-extension');
      mkdirSync(settings, { recursive: true });
      writeFileSync(
        join(settings, 'notification.jupyterlab-settings'),
        '{"fetchNews": "false", "checkForUpdates": false}'
      );
      const env: NodeJS.ProcessEnv = {
        ...process.env,
        PATH: `${join(ROOT, '.venv/bin')}:${process.env.PATH}`,
        PYTHONPATH: ROOT,
        MEGALENS_RUNTIME_DIR: runtime,
        JUPYTER_CONFIG_DIR: join(home, 'config'),
        JUPYTER_DATA_DIR: join(home, 'data'),
        JUPYTER_RUNTIME_DIR: join(home, 'runtime'),
        JUPYTERLAB_SETTINGS_DIR: join(home, 'settings'),
        JUPYTERLAB_WORKSPACES_DIR: join(home, 'workspaces'),
        IPYTHONDIR: join(home, 'ipython')
      };
      const token = randomBytes(16).toString('hex');
      const port = await freePort();
      const url = `http://127.0.0.1:${port}${basePath}`;
      const processes: IProcess[] = [];
      const server = start(
        PYTHON,
        [
          '-m',
          'jupyter',
          'lab',
          '--no-browser',
          '--allow-root',
          `--ServerApp.port=${port}`,
          '--ServerApp.port_retries=0',
          '--ServerApp.ip=127.0.0.1',
          `--ServerApp.base_url=${basePath}`,
          `--ServerApp.root_dir=${folder}`,
          `--IdentityProvider.token=${token}`
        ],
        env
      );
      processes.push(server);
      const hubs = () =>
        readdirSync(runtime)
          .filter(name => /^hub-.*\.json$/.test(name))
          .map(name => JSON.parse(readFileSync(join(runtime, name), 'utf-8')) as { id: string; pid: number });
      try {
        await until('JupyterLab', () =>
          fetch(`${url}api`).then(
            answer => answer.ok,
            () => {
              if (server.child.exitCode !== null) {
                throw new Error(server.output.join('\n'));
              }
              return false;
            }
          )
        );
        await use({
          url,
          folder,
          token,
          train: async (name, options = {}) => {
            const training = start(
              PYTHON,
              [
                join(__dirname, 'trainer.py'),
                `--name=${name}`,
                `--record=${join(folder, 'megalens-runs')}`,
                `--rate=${options.rate ?? 8}`,
                ...(options.traced ? ['--traced'] : [])
              ],
              env
            );
            processes.push(training);
            const id = await until(`the training ${name}`, () => {
              if (training.child.exitCode !== null) {
                throw new Error(training.output.join('\n'));
              }
              return training.output.find(line => /^[A-Za-z0-9._-]+$/.test(line));
            });
            const hub = await until('the hub', () => hubs().find(entry => entry.id === id)?.pid);
            return {
              id,
              name,
              process: training,
              hub,
              spoil: () => training.child.stdin?.write('nan\n')
            };
          }
        });
      } finally {
        for (const each of processes.reverse()) {
          await each.end();
        }
        // A hub lingers for viewers; its own process id says which one to end.
        for (const { pid } of hubs()) {
          try {
            process.kill(pid, 'SIGTERM');
          } catch {
            // It went by itself.
          }
        }
        await until('the hubs to end', () => hubs().length === 0, 15).catch(() => undefined);
        // A hub that was told to end may still be closing its recording.
        rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 });
      }
    },
    { scope: 'worker', timeout: 90_000 }
  ],
  open: async ({ page, lab }, use) => {
    await logIn(page, lab);
    // Without a saved layout, which would be restored while a test already works with the page.
    await use(async (path = 'lab?reset') => {
      await page.goto(`${lab.url}${path}`);
      await expect(page.locator('#jupyterlab-splash')).toHaveCount(0, { timeout: 45_000 });
      await expect(page.locator('#jp-main-dock-panel')).toBeVisible();
      return page;
    });
  }
});

export { expect };

/** Log in through the form, as a person does: the token is never in an address. */
export async function logIn(page: Page, lab: ILab): Promise<void> {
  await page.goto(`${lab.url}login`);
  await page.locator('#password_input').fill(lab.token);
  await page.locator('#login_submit').click();
  await page.waitForURL(url => !url.pathname.endsWith('/login'));
}

/** Show the panel and return it. */
export async function showPanel(page: Page) {
  const panel = page.locator('#megalens-panel');
  // A layout that is restored meanwhile may open the panel itself; a click would then close it.
  await expect(async () => {
    if (!(await panel.isVisible())) {
      await page.locator('.jp-SideBar [data-id="megalens-panel"]').click();
    }
    await expect(panel.locator('.jp-MegalensPanel')).toBeVisible({ timeout: 4_000 });
  }).toPass({ timeout: 20_000 });
  return panel;
}

/** Run a command of JupyterLab's palette by its label. */
export async function runFromPalette(page: Page, label: string): Promise<void> {
  const palette = page.locator('#modal-command-palette');
  // JupyterLab swallows the shortcut while it still settles.
  await expect(async () => {
    if (!(await palette.isVisible())) {
      await page.keyboard.press('Control+Shift+C');
    }
    await expect(palette).toBeVisible({ timeout: 2_000 });
  }).toPass({ timeout: 20_000 });
  await palette.locator('input').fill(label);
  await palette.locator('.lm-CommandPalette-item', { hasText: label }).first().click();
}

/** Wait until the open notebook's kernel is idle. */
export async function ready(page: Page): Promise<void> {
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'idle', {
    timeout: 40_000
  });
}

/** Run a cell of the open notebook, by its place. */
export async function runCell(page: Page, index: number): Promise<void> {
  const cell = page.locator('.jp-Notebook .jp-Cell').nth(index);
  // JupyterLab swallows the shortcut while it still settles; the prompt says whether it was taken.
  await expect(async () => {
    await cell.locator('.cm-content').click();
    await page.keyboard.press('Control+Enter');
    await expect(cell.locator('.jp-InputPrompt')).not.toHaveText('[ ]:', { timeout: 2_000 });
  }).toPass({ timeout: 20_000 });
}

/** Switch JupyterLab's theme. */
export async function setTheme(page: Page, theme: 'JupyterLab Light' | 'JupyterLab Dark'): Promise<void> {
  await runFromPalette(
    page,
    theme === 'JupyterLab Dark' ? 'Use Theme: JupyterLab Dark' : 'Use Theme: JupyterLab Light'
  );
  await expect(page.locator('body')).toHaveAttribute('data-jp-theme-name', theme);
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  return port;
}

export { runFromPalette as run };
