// Bundles src/report into the one script that makes a report's charts live: megalens/report/runtime/report-runtime.js.
import { build } from 'esbuild';
import { mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const outfile = join(root, 'megalens/report/runtime/report-runtime.js');
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

await mkdir(dirname(outfile), { recursive: true });
await build({
  entryPoints: [join(root, 'src/report/runtime.ts')],
  outfile,
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  platform: 'browser',
  legalComments: 'none',
  banner: {
    js: '/* Holds Vega (BSD-3-Clause, University of Washington) and parts of D3 (ISC, Mike Bostock). */'
  },
  charset: 'ascii',
  logLevel: 'warning',
  plugins: [withoutCodeFromStrings]
});

const script = await readFile(outfile);
if (script.length > MOST_BYTES) {
  console.error(
    `The report runtime is ${script.length} bytes; at most ${MOST_BYTES} were expected. See what it imports.`
  );
  process.exit(1);
}
if (/<\/script/i.test(script.toString('utf8'))) {
  console.error('The report runtime holds a closing script tag, so it cannot stand inside a page.');
  process.exit(1);
}
console.log(`report runtime: ${Math.round(script.length / 1000)} kB`);
