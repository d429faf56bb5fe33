import { execFileSync, spawnSync } from 'child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'fs';
import { tmpdir } from 'os';
import { join } from 'path';
import { TranslationManager } from '@jupyterlab/translation';
import { viewTitle } from '../protocol/view-info';
import { emptyState } from '../views/shared/states';
import { layerWords } from '../views/shared/layers';

const ROOT = join(__dirname, '../..');
const SCRIPT = join(ROOT, 'scripts/words.mjs');
const LOCALE = 'megalens/locale/zh_CN/LC_MESSAGES';

async function chinese() {
  const megalens: unknown = JSON.parse(readFileSync(join(ROOT, LOCALE, 'megalens.json'), 'utf-8'));
  const connector = { fetch: () => Promise.resolve({ data: { megalens }, message: '' }) };
  const manager = new TranslationManager('', undefined, undefined, connector as never);
  await manager.fetch('zh_CN');
  return manager.load('megalens');
}

it('has every text of the interface in every language, with its places, and no text that is gone', () => {
  expect(execFileSync('node', [SCRIPT, '--check'], { cwd: ROOT, encoding: 'utf-8' })).toMatch(
    /^\d{4} texts, 0 faults\n$/
  );
});

it('is read by JupyterLab, with plurals, titles of views and words that are made elsewhere', async () => {
  const trans = await chinese();
  const t = (text: string, ...args: (string | number)[]): string => trans.__(text, ...args.map(String));
  expect(t('Runs')).toBe('运行');
  expect([1, 2].map(count => trans._n('%1 alarm', '%1 alarms', count))).toEqual(['1 条告警', '2 条告警']);
  expect(viewTitle({ view: 'overview' }, t)).toBe('总览');
  expect(layerWords([3], t)).toBe('第 3 层');
  expect(layerWords([0, 1, 2, 7], t)).toBe('层 0 至 2和7');
  expect(emptyState(t('Nothing is traced yet.'), t('Check again'), () => undefined).sentence).toBe(
    '尚未追踪任何内容。'
  );
});

it('says which text is not translated, is gone, lost a place, or does not go through the translator', () => {
  const folder = mkdtempSync(join(tmpdir(), 'megalens-words-'));
  try {
    mkdirSync(join(folder, 'src'));
    mkdirSync(join(folder, LOCALE), { recursive: true });
    const source = [
      "export const words = (t: Translate) => [t('one'), t('two %1', 2), t(made('three'))];",
      "export const control = { label: 'Four words' };",
      "export const plural = (trans: Bundle) => trans._n('%1 step', '%1 steps', 2);"
    ];
    writeFileSync(join(folder, 'src/a.ts'), source.join('\n'));
    const head = { domain: 'megalens', language: 'xx', plural_forms: 'nplurals=1; plural=0;' };
    const words = { '': head, 'two %1': ['zwei'], gone: ['weg'], '%1 step': ['%1 Schritt'] };
    writeFileSync(join(folder, LOCALE, 'megalens.json'), JSON.stringify(words));
    const check = (...args: string[]) =>
      spawnSync('node', [SCRIPT, ...args], { cwd: folder, encoding: 'utf-8' })
        .stdout.trim()
        .split('\n');
    expect(check('--check')).toEqual([
      "The text of this call is not known: src/a.ts:1: t(made('three'))",
      "This text does not go through the translator: src/a.ts:2: label: 'Four words'",
      'zh_CN: “one” (src/a.ts:1): must have 1 texts, got []',
      'zh_CN: “two %1” (src/a.ts:1): must have %1, got “zwei”',
      'zh_CN: “%1 step” (src/a.ts:3): must have 2 texts, got ["%1 Schritt"]',
      'zh_CN: “gone” is no text of the interface any more',
      '3 texts, 6 faults'
    ]);
    check();
    expect(JSON.parse(readFileSync(join(folder, LOCALE, 'megalens.json'), 'utf-8'))).toEqual({
      '': head,
      '%1 step': ['%1 Schritt'],
      one: [''],
      'two %1': ['zwei']
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
