import { writeFileSync } from 'fs';
import { join } from 'path';
import { expect, test as base, type BrowserContext, type Locator, type Page } from '@playwright/test';
import { withLab, type ILab } from './lab-server';
import { picture, PICTURES } from './picture';

/** The one that JupyterLab starts with is the last. */
export const THEMES = [
  ['JupyterLab Dark', 'dark'],
  ['JupyterLab Light', 'light']
] as const;

/** Options of a project. */
export interface ILabOptions {
  /** The server's base URL path. */
  basePath: string;
}

/** What JupyterLab itself tells about its start and about the kernel of the notebook in front. */
export interface IExposedApp {
  restored: Promise<void>;
  commands: { execute(name: string, options: object): Promise<unknown> };
  shell: {
    widgets(area: 'main'): Iterable<{ dispose(): void }>;
    collapseLeft(): void;
    currentWidget: {
      context?: {
        sessionContext?: {
          isRestarting: boolean;
          session: { kernel: { status: string; connectionStatus: string } | null } | null;
        };
      };
    } | null;
  };
}

interface IWorkerFixtures extends ILabOptions {
  lab: ILab;
  /** A browser that is logged in; it keeps JupyterLab's code in its cache from one test to the next. */
  session: BrowserContext;
  /** The page of a file of tests, once it is loaded. */
  kept: { file: string; page?: Page };
}

interface IFixtures {
  /**
   * The page with JupyterLab, in which nothing but the launcher or one document is open.
   *
   * The tests of a file share it, as JupyterLab takes seconds to start: what a test chose in the panel is still chosen.
   */
  open: (path?: string) => Promise<Page>;
}

/** Tests with a real JupyterLab per worker and project; `page` is one of a test's own, `open` gives that of its file. */
export const test = base.extend<IFixtures, IWorkerFixtures>({
  basePath: ['/', { option: true, scope: 'worker' }],
  lab: [async ({ basePath }, use) => withLab(basePath, use), { scope: 'worker', timeout: 90_000 }],
  session: [
    async ({ browser, lab }, use) => {
      const session = await browser.newContext(CONTEXT);
      const page = await session.newPage();
      await logIn(page, lab);
      await page.close();
      await use(session);
      await session.close();
    },
    { scope: 'worker', timeout: 60_000 }
  ],
  context: async ({ session }, use) => {
    await use(session);
    await session.setOffline(false);
  },
  page: async ({ context }, use) => {
    const page = await context.newPage();
    await use(page);
    await page.close();
  },
  kept: [
    async ({}, use) => {
      const kept: IWorkerFixtures['kept'] = { file: '' };
      await use(kept);
      await kept.page?.close();
    },
    { scope: 'worker' }
  ],
  open: async ({ session, kept, lab }, use, { file }) => {
    await use(async path => {
      if (kept.page && kept.file === file) {
        await cleared(kept.page, path);
      } else {
        await kept.page?.close();
        Object.assign(kept, { file, page: await session.newPage() });
        await load(kept.page!, lab, path);
      }
      return kept.page!;
    });
  }
});

/** Load JupyterLab in a page, with a document where its path is given. */
export async function load(page: Page, lab: ILab, path?: string): Promise<void> {
  // Without a saved layout, which would be restored while a test already works with the page.
  await page.goto(`${lab.url}lab${path ? `/tree/${path}` : ''}?reset`);
  await settled(page);
}

/** Close all that is open, and show a document or the launcher, as if JupyterLab had just started. */
async function cleared(page: Page, path?: string): Promise<void> {
  await page.setViewportSize(CONTEXT.viewport);
  await page.evaluate(async document => {
    const { commands, shell } = (window as unknown as { jupyterapp: IExposedApp }).jupyterapp;
    const before = [...shell.widgets('main')];
    shell.collapseLeft();
    // Wherever the work area is empty, JupyterLab puts the launcher; closing a document would ask whether to save it.
    if (document) {
      await commands.execute('docmanager:open', { path: document });
    }
    before.forEach(widget => widget.dispose());
  }, path);
  if (!path) {
    await expect(page.locator('.jp-Launcher')).toBeVisible();
    await page.locator('.jp-Launcher').click({ position: { x: 4, y: 4 } });
  }
  await settled(page);
}

export { expect };
export type { ILab, ITraining } from './lab-server';

/** What every browser of the tests is like. */
export const CONTEXT = {
  viewport: { width: 1360, height: 860 },
  acceptDownloads: true,
  permissions: ['clipboard-read', 'clipboard-write']
};

/**
 * Wait until JupyterLab's start is over: its layout restored and its first document in the main area active.
 *
 * That document takes the focus as its last act; a key pressed before goes where nobody looks.
 */
export async function settled(page: Page): Promise<void> {
  await expect(page.locator('#jupyterlab-splash')).toHaveCount(0, { timeout: 45_000 });
  await expect(page.locator('#jp-main-dock-panel')).toBeVisible();
  await page.evaluate(() => (window as unknown as { jupyterapp: IExposedApp }).jupyterapp.restored);
  await expect
    .poll(() => page.evaluate(() => document.activeElement?.closest('#jp-main-dock-panel') !== null), {
      message: 'JupyterLab gives its first document the focus',
      timeout: 30_000
    })
    .toBe(true);
}

/** Log in through the form, as a person does: the token is never in an address. */
export async function logIn(page: Page, lab: ILab): Promise<void> {
  await page.goto(`${lab.url}login`);
  await page.locator('#password_input').fill(lab.token);
  await page.locator('#login_submit').click();
  await page.waitForURL(url => !url.pathname.endsWith('/login'));
}

/** Show the panel and return it. */
export async function showPanel(page: Page): Promise<Locator> {
  const panel = page.locator('#megalens-panel');
  // A layout that was restored may have opened the panel itself; a click would then close it.
  await expect(async () => {
    if (!(await panel.isVisible())) {
      await page.locator('.jp-SideBar [data-id="megalens-panel"]').click();
    }
    await expect(panel.locator('.jp-MegalensPanel')).toBeVisible({ timeout: 4_000 });
  }).toPass({ timeout: 20_000 });
  return panel;
}

/** Make the panel as narrow as it may be: 280 pixels, out of which nothing stands. */
export async function narrow(panel: Locator): Promise<void> {
  const page = panel.page();
  const edge = await page.locator('#jp-main-split-panel > .lm-SplitPanel-handle').first().boundingBox();
  const width = async () => (await panel.boundingBox())?.width ?? 0;
  const now = await width();
  await page.mouse.move(edge!.x + edge!.width / 2, edge!.y + 200);
  await page.mouse.down();
  await page.mouse.move(edge!.x + edge!.width / 2 + 280 - now, edge!.y + 200, { steps: 4 });
  await page.mouse.up();
  await expect.poll(async () => Math.abs((await width()) - 280)).toBeLessThan(3);
  const spill = () =>
    panel.evaluate(node => {
      const edge = node.getBoundingClientRect().right + 0.5;
      return [...node.querySelectorAll('*')]
        .filter(
          child => child.getBoundingClientRect().width > 0 && child.getBoundingClientRect().right > edge
        )
        .map(child => child.outerHTML.slice(0, 120));
    });
  await expect.poll(spill).toEqual([]);
}

/** Run a command of JupyterLab's palette by its label. */
export async function runFromPalette(page: Page, label: string): Promise<void> {
  const palette = page.locator('#modal-command-palette');
  // JupyterLab swallows the shortcut while it still settles, and a document that takes the focus closes the palette again.
  await expect(async () => {
    if (!(await palette.isVisible())) {
      await page.keyboard.press('Control+Shift+C');
    }
    await expect(palette).toBeVisible({ timeout: 2_000 });
    await palette.locator('input').fill(label, { timeout: 2_000 });
    await palette.locator('.lm-CommandPalette-item', { hasText: label }).first().click({ timeout: 4_000 });
  }).toPass({ timeout: 40_000 });
}

/**
 * Wait until the open notebook's kernel is there, connected and idle.
 *
 * The notebook's indicator says idle before there is a kernel at all, and until there is one JupyterLab runs no cell and says nothing. Starting one takes long:
 * a process that imports ipykernel beside a training that starts.
 */
export async function ready(page: Page): Promise<void> {
  const kernel = (): Promise<string> =>
    page.evaluate(() => {
      const { shell } = (window as unknown as { jupyterapp: IExposedApp }).jupyterapp;
      const session = shell.currentWidget?.context?.sessionContext;
      const kernel = session?.session?.kernel;
      return kernel && !session?.isRestarting ? `${kernel.connectionStatus}, ${kernel.status}` : 'none';
    });
  await expect.poll(kernel, { message: 'the kernel is idle', timeout: 40_000 }).toBe('connected, idle');
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'idle');
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
  // The new style sheets come behind a curtain.
  await expect(page.locator('#jupyterlab-splash')).toHaveCount(0);
}

/** Write a notebook of code cells that were never run into the lab's folder. */
export function writeNotebook(lab: ILab, name: string, cells: string[]): void {
  const notebook = {
    nbformat: 4,
    nbformat_minor: 5,
    metadata: { kernelspec: { name: 'python3', display_name: 'Python 3 (ipykernel)', language: 'python' } },
    cells: cells.map((source, i) => ({
      id: `cell-${i}`,
      cell_type: 'code',
      source,
      metadata: {},
      outputs: [],
      execution_count: null
    }))
  };
  writeFileSync(join(lab.folder, name), JSON.stringify(notebook));
}

/** Take a picture of the page, or of a part, in the dark theme and in the light one, where pictures are wanted. */
export async function shots(page: Page, name: string, of: Page | Locator = page): Promise<void> {
  for (const [theme, tone] of PICTURES ? THEMES : []) {
    await setTheme(page, theme);
    await picture(of, `${name}-${tone}`);
  }
}
