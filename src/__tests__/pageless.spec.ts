/** @jest-environment ./jest.environment.node.js */
import { existsSync, readdirSync, readFileSync } from 'fs';
import { dirname, join, relative, resolve } from 'path';

const SOURCE = resolve('src');
const isOfView = (path: string): boolean => /^(instruments\/.*)?views\//.test(relative(SOURCE, path));

/** The files of views that a file brings with it, now or later. */
function reached(path: string, seen = new Set<string>()): Set<string> {
  if (!seen.has(path)) {
    seen.add(path);
    const text = readFileSync(path, 'utf8').replace(/^import type [^;]*;/gm, '');
    for (const [, name = ''] of text.matchAll(/(?:from|import\()\s*'(\.[^']*)'/g)) {
      const target = join(dirname(path), name);
      const file = [`${target}.ts`, join(target, 'index.ts')].find(existsSync);
      if (file && isOfView(file)) {
        reached(file, seen);
      }
    }
  }
  return seen;
}

it('views can be read without a page, those of instruments too', () => {
  const ofInstruments = readdirSync(join(SOURCE, 'instruments'), { recursive: true, encoding: 'utf8' })
    .filter(path => /(^|\/)views\/\w+\/index\.ts$/.test(path))
    .map(path => join(SOURCE, 'instruments', path));
  const seen = new Set<string>();
  [join(SOURCE, 'views/still.ts'), ...ofInstruments].forEach(path => reached(path, seen));
  const files = [...seen].map(path => relative(SOURCE, path));
  expect(files.length).toBeGreaterThan(60);
  const page =
    /^views\/mount\b|\b(document|window|navigator|localStorage)\b[.?[]|\b(HTML|SVG)\w*Element\b|\blumino\/widgets\b/;
  const needsPage = (name: string): boolean =>
    page.test(name) || page.test(readFileSync(join(SOURCE, name), 'utf8'));
  expect(files.filter(needsPage)).toEqual([]);
});
