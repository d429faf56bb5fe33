// Bundles src/report into what makes a report's views live: megalens/report/runtime/report-page.json, which holds the script, the digests
// by which a page allows it, and the styles.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deflateSync } from 'node:zlib';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const outfile = join(root, 'megalens/report/runtime/report-page.json');
/** Deflated and as text; with one view's rows a page is hardly smaller. */
const MOST_BYTES = 700_000;

/**
 * Vega makes functions from strings in three places: reading CSV, its code generator, and its comparators. With the interpreter none of them
 * runs; the constructor is replaced all the same, so that the file holds no way to do it.
 */
const withoutCodeFromStrings = {
  name: 'without-code-from-strings',
  setup(builder) {
    builder.onLoad({ filter: /node_modules\/.*\.m?js$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const refused = '(() => { throw new Error("A report makes no code from text."); })';
      return {
        contents: source
          .replace(/\bnew Function\(/g, `${refused}(`)
          .replace(/(?<![\w.])Function\(/g, `${refused}(`),
        loader: 'js'
      };
    });
  }
};

/** What a page does in another way than JupyterLab: it computes in place, as its policy allows no worker. */
const inPlace = {
  name: 'in-place',
  setup(builder) {
    const instead = { 'open-worker': 'export const openWorker = () => null;' };
    for (const [name, contents] of Object.entries(instead)) {
      builder.onLoad({ filter: new RegExp(`src/aggregate/${name}\\.ts$`) }, () => ({ contents }));
    }
  }
};

const common = {
  bundle: true,
  minify: true,
  write: false,
  legalComments: 'none',
  charset: 'ascii',
  logLevel: 'warning'
};
const textOf = async options => (await build({ ...common, ...options })).outputFiles[0].text;
const digestOf = text => createHash('sha256').update(text, 'utf8').digest('base64');

const views = await textOf({
  entryPoints: [join(root, 'src/report/runtime.ts')],
  format: 'iife',
  target: 'es2022',
  platform: 'browser',
  plugins: [withoutCodeFromStrings, inPlace]
});
const style = await textOf({ entryPoints: [join(root, 'src/report/page.css')], target: 'es2022' });
const packed = deflateSync(views, { level: 9 }).toString('base64');
// A page allows a script by its digest, whoever puts it there: this one unpacks the other one and puts it there.
const script = [
  '/* Holds Vega (BSD-3-Clause, University of Washington), parts of D3 (ISC, Mike Bostock) and Lumino (BSD-3-Clause, Project Jupyter), deflated. */',
  '"DecompressionStream" in self && (async packed => {',
  'const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));',
  'const script = document.createElement("script");',
  'script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();',
  'document.head.append(script);',
  `})("${packed}");`
].join('\n');
if (script.length > MOST_BYTES) {
  console.error(
    `The report runtime is ${script.length} bytes; at most ${MOST_BYTES} were expected. See what it imports.`
  );
  process.exit(1);
}
await mkdir(dirname(outfile), { recursive: true });
await writeFile(outfile, JSON.stringify({ script, digests: [script, views].map(digestOf), style }));
console.log(
  `report runtime: ${Math.round(script.length / 1000)} kB of ${Math.round(views.length / 1000)} kB`
);
