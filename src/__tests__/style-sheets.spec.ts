/** @jest-environment ./jest.environment.node.js */
import { readdirSync, readFileSync } from 'fs';
import { join } from 'path';
import COLORS from '#protocol/charts/colors.json';

const read = (path: string): string => readFileSync(path, 'utf-8');

/** The style sheets that a sheet brings, itself included. */
function sheetsOf(name: string, found = new Set<string>()): Set<string> {
  if (!found.has(name)) {
    found.add(name);
    for (const [, other = ''] of read(join('style', name)).matchAll(/@import\s+url\('([^']+)'\)/g)) {
      sheetsOf(other, found);
    }
  }
  return found;
}

function sourcesUnder(folder: string, ending = /\.tsx?$/): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      return entry.name === '__tests__' ? [] : sourcesUnder(path, ending);
    }
    return ending.test(entry.name) ? [path] : [];
  });
}

/** Names by which code, or JupyterLab, finds a node that has no look of its own. */
const UNSTYLED = [
  'jp-MegalensCell',
  'jp-MegalensControls-box',
  'jp-MegalensHealth',
  'jp-MegalensHistory-map',
  'jp-MegalensLegend-entry',
  'jp-MegalensOtherView',
  'jp-MegalensPipeline',
  'jp-MegalensRunsTable-notes',
  'jp-MegalensTokens-candidates',
  'jp-mod-follow',
  'jp-mod-minimal',
  'jp-mod-on',
  'jp-mod-plain'
];

const built = /import '\.\/([^']+)'/.exec(read('style/index.js'))?.[1] ?? '';

it('every colour that code writes is one of colors.json, or stands in for a variable of the page', () => {
  const written = sourcesUnder('src').flatMap(path =>
    // Icons of JupyterLab have one colour, which it changes with the theme.
    [...read(path).matchAll(/(?<!, |class="jp-icon3" fill=")#[0-9a-f]{6}\b/gi)].map(
      ([color]) => `${path} ${color}`
    )
  );
  expect(written.sort()).toEqual([
    'src/charts/color-scale.ts #000000',
    'src/charts/color-scale.ts #000000',
    'src/charts/color-scale.ts #ffffff',
    'src/charts/color-scale.ts #ffffff'
  ]);
});

it('what is not finite has one colour in pictures and beside them', () => {
  const ofView = (name: string): string | undefined =>
    new RegExp(`--jp-megalens-${name}: (#\\w+);`).exec(read('style/views.css'))?.[1];
  expect([ofView('nonfinite'), ofView('nonfinite-line')]).toEqual(COLORS.nonfinite);
});

it('every style sheet is part of the one that is built', () => {
  const sheets = readdirSync('style').filter(name => name.endsWith('.css') && name !== 'index.css');
  expect([...sheetsOf(built)].sort()).toEqual(sheets.sort());
  expect([...sheetsOf('index.css')].sort()).toEqual(['index.css', ...sheets].sort());
});

it('every class that code uses is styled by what is built, or listed as one without a look', () => {
  // Those beside code are of pages without JupyterLab, which bring them.
  const sheets = [...[...sheetsOf(built)].map(name => join('style', name)), ...sourcesUnder('src', /\.css$/)];
  const styles = sheets.map(read).join('\n');
  const styled = new Set([...styles.matchAll(/\.([A-Za-z][\w-]*)/g)].map(([, name]) => name));
  // What ends in a hyphen is the beginning of a name that code puts together.
  const used = sourcesUnder('src').flatMap(path =>
    [...read(path).matchAll(/(?<![\w-])jp-(?:Megalens[A-Z]|mod-)[\w-]*/g)].map(([name]) => name)
  );
  const plain = [...new Set(used)].filter(name => !name.endsWith('-') && !styled.has(name));
  expect(plain.sort()).toEqual(UNSTYLED);
});
