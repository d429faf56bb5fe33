import type { Page } from '@playwright/test';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { url } from './test';
import { THEMES } from './themes';

const STYLES = ['base', 'panel', 'panel-runs', 'panel-settings', 'runs-table', 'control'];

/** Show a widget, by its script, in a page of a theme without JupyterLab. */
export async function showWidget(
  page: Page,
  name: 'fit-page' | 'panel-page',
  theme: 'light' | 'dark'
): Promise<void> {
  const variables = Object.entries(THEMES[theme]).map(([name, value]) => `${name}: ${value};`);
  const rules = STYLES.map(name => readFileSync(resolve(__dirname, `../../style/${name}.css`), 'utf8'));
  const style = `:root { --jp-border-radius: 2px; ${variables.join(' ')} }\n${rules.join('\n')}`;
  await page.setContent(
    `<!doctype html><html lang="en"><body data-jp-theme-light="${theme === 'light'}"><style>${style}\nbody { margin: 0; font: 13px system-ui, sans-serif; background: var(--jp-layout-color1) }\n:is(.jp-MegalensPanel, .jp-MegalensRunsTable) { position: absolute; inset: 0; overflow: auto }</style>`
  );
  await page.addScriptTag({ url: `${url()}${name}.js` });
}
