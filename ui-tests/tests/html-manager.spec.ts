import { resolve } from 'path';
import { build } from 'esbuild';
import { expect, test, type ITraining } from '../lab';
import { picture, SHOWN } from '../picture';

test.describe.configure({ mode: 'serial' });

const ROOT = resolve(__dirname, '../..');
let training: ITraining;
let script: string;

declare global {
  interface Window {
    show(url: string, token: string, code: string): Promise<void>;
    run(code: string): Promise<unknown>;
  }
}

test.beforeAll(async ({ lab }) => {
  training = await lab.train('gpt-plain', { traced: true });
  const { outputFiles } = await build({
    entryPoints: [resolve(__dirname, '../html-manager-page.ts')],
    bundle: true,
    write: false,
    format: 'iife',
    loader: {
      '.svg': 'empty',
      '.css': 'empty',
      '.woff': 'empty',
      '.woff2': 'empty',
      '.ttf': 'empty',
      '.eot': 'empty'
    },
    define: { 'process.env.NODE_ENV': '"production"', process: '{"env":{},"argv":[]}', global: 'globalThis' },
    banner: { js: 'var __webpack_public_path__ = "";' },
    logLevel: 'error'
  });
  script = outputFiles[0]!.text;
});

test.afterAll(async () => {
  await training.process.end();
});

for (const theme of SHOWN) {
  test(`a view is live in a ${theme} page that has html-manager alone, and its options go both ways`, async ({
    page,
    lab
  }) => {
    // Whatever page of the server's: only from such one a browser may reach its kernels.
    await page.goto(`${lab.url}no-such-page`);
    await page.evaluate(
      ground => {
        document.body.replaceChildren();
        document.body.style.background = ground;
      },
      theme === 'dark' ? '#111' : '#fff'
    );
    await page.addScriptTag({ content: script });
    await page.addScriptTag({ path: resolve(ROOT, '.venv/share/jupyter/nbextensions/anywidget/index.js') });
    const code =
      'import megalens\nmegalens.use_widgets("anywidget")\nrun = megalens.connect("gpt-plain")\n' +
      'view = run.trend("HiddenStates", layers="1")\nview';
    await page.evaluate(args => window.show(...args), [lab.url, lab.token, code] as const);
    const view = page.locator('.jp-MegalensView');
    await expect(view.locator('.jp-MegalensPlot canvas').first()).toBeVisible({ timeout: 60_000 });
    await expect(page.locator('.jp-MegalensAlone')).toHaveAttribute('data-theme', theme);
    const layers = view.getByRole('combobox', { name: 'Layers' });
    await expect(layers).toHaveValue('1');
    await layers.fill('2');
    await layers.press('Enter');
    await expect(view.locator('.jp-MegalensView-title')).toContainText('layer 2');
    // The widget sends what was chosen once the kernel has answered what it sent before.
    const layersThere = async (): Promise<string> => {
      await page.evaluate(() => window.run('print(f"layers are {view.layers}.")'));
      return page.title();
    };
    await expect.poll(layersThere).toMatch(/layers are 2\./);
    await page.evaluate(() => window.run('view.layers = "0-1"'));
    await expect(view.locator('.jp-MegalensView-title')).toContainText('layers 0 and 1');
    const before = await view.innerText();
    await expect.poll(() => view.innerText()).not.toBe(before);
    await picture(page, `html-manager-${theme}`);
  });
}
