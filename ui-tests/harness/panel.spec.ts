import { expect, test } from '@playwright/test';
import { build } from 'esbuild';
import { mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { THEMES } from './themes';

const HERE = resolve(__dirname);
const SHOTS = resolve(HERE, '../screenshots');
const STYLES = ['panel', 'panel-runs', 'panel-settings', 'control'];
let script = '';

test.beforeAll(async () => {
  mkdirSync(SHOTS, { recursive: true });
  const { outputFiles } = await build({
    entryPoints: [join(HERE, 'panel-page.ts')],
    bundle: true,
    write: false,
    format: 'iife',
    loader: { '.svg': 'text', '.css': 'empty' },
    define: { 'process.env.NODE_ENV': '"production"', process: '{"env":{},"argv":[]}', global: 'globalThis' },
    logLevel: 'error'
  });
  script = outputFiles[0]?.text ?? '';
});

for (const theme of ['light', 'dark'] as const) {
  test(`a panel of hostile names with a section that throws, ${theme}`, async ({ page }) => {
    const variables = Object.entries(THEMES[theme]).map(([name, value]) => `${name}: ${value};`);
    const rules = STYLES.map(name => readFileSync(resolve(HERE, `../../style/${name}.css`), 'utf8'));
    const style = `:root { --jp-ui-font-size1: 13px; --jp-border-radius: 2px; ${variables.join(' ')} }\n${rules.join('\n')}`;
    await page.setViewportSize({ width: 300, height: 900 });
    await page.setContent(
      `<style>${style}\nbody { margin: 0; font: 13px system-ui, sans-serif; background: var(--jp-layout-color1) }\n.jp-MegalensPanel { position: absolute; inset: 0; overflow: auto }</style>`
    );
    await page.addScriptTag({ content: script });
    const fault = page.locator('.jp-mod-perturb.jp-mod-fault');
    await expect(fault.getByRole('alert')).toContainText('are not affected');
    for (const name of ['runs', 'summary', 'trace', 'views']) {
      await expect(page.locator(`.jp-mod-${name} .jp-MegalensSection-toggle`)).toBeVisible();
    }
    await expect(page.locator('.jp-mod-trace label', { hasText: /^__proto__$/ })).toBeVisible();
    await page.screenshot({ path: join(SHOTS, `panel-fault-${theme}.png`) });
    await fault.getByRole('button', { name: 'Copy details' }).click();
    expect(await page.evaluate('copied[0]')).toContain('TypeError');
    await page.evaluate('mend()');
    await fault.getByRole('button', { name: 'Reset' }).click();
    await expect(fault).toHaveCount(0);
  });
}
