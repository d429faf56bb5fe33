// Bundles what runs outside of JupyterLab's page into one script each: src/report for a report's page, src/engine for V8 in the kernel.
import { build } from 'esbuild';
import { mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const BUNDLES = [
  {
    name: 'report runtime',
    entry: 'src/report/runtime.ts',
    out: 'megalens/report/runtime/report-runtime.js',
    most: 700_000
  },
  { name: 'engine', entry: 'src/engine/index.ts', out: 'megalens/engine/bundle/engine.js', most: 2_000_000 }
];

/**
 * Vega and arquero make functions from strings: for reading CSV, as generators of code, and for comparators. With the interpreter none of them
 * runs; the constructor is replaced all the same, so that the file holds no way to do it.
 */
const withoutCodeFromStrings = {
  name: 'without-code-from-strings',
  setup(builder) {
    builder.onLoad({ filter: /node_modules\/.*\.m?js$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const refused = '(() => { throw new Error("Megalens makes no code from text here."); })';
      return {
        contents: source
          .replace(/\bnew Function\(/g, `${refused}(`)
          .replace(/(?<![\w.])Function\(/g, `${refused}(`),
        loader: 'js'
      };
    });
  }
};

/** Bundle one entry into one script without imports. */
async function bundle(entry, outfile) {
  await mkdir(dirname(outfile), { recursive: true });
  await build({
    entryPoints: [entry],
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
    // Only a page with workers opens one by its address.
    define: { 'import.meta.url': '"about:blank"' },
    charset: 'ascii',
    logLevel: 'warning',
    plugins: [withoutCodeFromStrings]
  });
}

async function buildAll() {
  for (const { name, entry, out, most } of BUNDLES) {
    const outfile = join(root, out);
    await bundle(join(root, entry), outfile);
    const script = await readFile(outfile);
    if (script.length > most) {
      throw new Error(
        `The ${name} has ${script.length} bytes; at most ${most} were expected. See what it imports.`
      );
    }
    if (/<\/script/i.test(script.toString('utf8'))) {
      throw new Error(`The ${name} holds a closing script tag, so it cannot stand inside a page.`);
    }
    console.log(`${name}: ${Math.round(script.length / 1000)} kB`);
  }
}

if (process.argv[2] === undefined) {
  await buildAll();
} else {
  // For tests: an entry of their own, and where to write it.
  await bundle(process.argv[2], process.argv[3]);
}
