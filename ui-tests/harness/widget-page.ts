import type { Page } from '@playwright/test';
import { build } from 'esbuild';
import { mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { THEMES } from './themes';

const HERE = resolve(__dirname);
export const SHOTS = resolve(HERE, '../screenshots');
const STYLES = ['base', 'panel', 'panel-runs', 'panel-settings', 'runs-table', 'control'];

/** A script of this folder with all that it needs. */
export async function bundled(name: string): Promise<string> {
  mkdirSync(SHOTS, { recursive: true });
  const { outputFiles } = await build({
    entryPoints: [join(HERE, name)],
    bundle: true,
    write: false,
    format: 'iife',
    loader: { '.svg': 'text', '.css': 'empty' },
    define: { 'process.env.NODE_ENV': '"production"', process: '{"env":{},"argv":[]}', global: 'globalThis' },
    logLevel: 'error'
  });
  return outputFiles[0]?.text ?? '';
}

/** Run a script that shows a widget, in a page of a theme without JupyterLab. */
export async function showWidget(page: Page, script: string, theme: 'light' | 'dark'): Promise<void> {
  const variables = Object.entries(THEMES[theme]).map(([name, value]) => `${name}: ${value};`);
  const rules = STYLES.map(name => readFileSync(resolve(HERE, `../../style/${name}.css`), 'utf8'));
  const style = `:root { --jp-border-radius: 2px; ${variables.join(' ')} }\n${rules.join('\n')}`;
  await page.setContent(
    `<!doctype html><html lang="en"><body data-jp-theme-light="${theme === 'light'}"><style>${style}\nbody { margin: 0; font: 13px system-ui, sans-serif; background: var(--jp-layout-color1) }\n:is(.jp-MegalensPanel, .jp-MegalensRunsTable) { position: absolute; inset: 0; overflow: auto }</style>`
  );
  await page.addScriptTag({ content: script });
}
