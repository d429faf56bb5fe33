// Bundles what runs outside of JupyterLab's page into one script each: src/report for a report's page, src/page for the server's own page, src/engine for V8 in the kernel.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deflateSync } from 'node:zlib';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const ENGINE = 'megalens/pictures/engine/bundle/engine.js';
const PAGE = 'megalens/pictures/report/runtime/report-page.json';
const MODULE = 'megalens/pictures/engine/bundle';
const SERVED = 'megalens/server/page';
const MOST_BYTES = { engine: 2_000_000, page: 903_000, module: 1_000_000, served: 850_000 };
const HOLDS =
  '/* Holds Vega (BSD-3-Clause, University of Washington), parts of D3 (ISC, Mike Bostock), Lumino (BSD-3-Clause, Project Jupyter) and others. */';

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

/** What a report's page and the kernel's engine do in another way than JupyterLab: they compute in place, without a worker and without code from text. */
const IN_PLACE = { '\\w+(/\\w+)*/open-worker': 'export const openWorker = () => null;' };
const FROZEN = {
  'aggregate/load-tables':
    "import { AggregateError } from './moment-merge';" +
    'export const loadTables = () => Promise.reject(new AggregateError("A report has no arquero. JupyterLab does this.", "frozen"));'
};
const replacing = instead => ({
  name: 'replacing',
  setup(builder) {
    for (const [name, contents] of Object.entries(instead)) {
      builder.onLoad({ filter: new RegExp(`src/${name}\\.ts$`) }, () => ({ contents }));
    }
  }
});
const inPlace = replacing({ ...IN_PLACE, ...FROZEN });

/** Leave out of the schemas what no check reads: their prose, and what they say to generators (`x-…`). */
const withoutProse = {
  name: 'without-prose',
  setup(builder) {
    builder.onLoad({ filter: /protocol\/\w+\.schema\.json$/ }, async ({ path }) => ({
      contents: JSON.stringify(
        JSON.parse(await readFile(path, 'utf8'), (name, value) => (isProse(name, value) ? undefined : value))
      ),
      loader: 'json'
    }));
  }
};

// A property may be called `title`: its schema is an object.
const isProse = (name, value) =>
  name.startsWith('x-') || (['title', 'description'].includes(name) && typeof value === 'string');

/** Leave out the parts of instruments that the root of a bundle never asks for: `slice` in their `index.ts` names all, each to be loaded when it is needed. */
const withoutParts = parts => ({
  name: 'without-parts',
  setup(builder) {
    builder.onResolve({ filter: new RegExp(`^\\./(\\w+/)?(${parts})\\b`) }, ({ path, importer }) =>
      /src\/instruments\/\w+\/index\.ts$/.test(importer) ? { path, namespace: 'left-out' } : undefined
    );
    builder.onLoad({ filter: /.*/, namespace: 'left-out' }, () => ({ contents: 'export {};' }));
  }
});

/** Bundle one entry into one script without imports, or its styles into one sheet. */
async function textOf(entry, plugins = [], define = {}, format = 'iife') {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format,
    target: 'es2022',
    platform: 'browser',
    legalComments: 'none',
    // Only a page with workers opens one by its address.
    define: { 'import.meta.url': '"about:blank"', ...define },
    charset: 'ascii',
    logLevel: 'warning',
    loader: { '.svg': 'text' },
    plugins: [withoutCodeFromStrings, withoutProse, ...plugins]
  });
  return result.outputFiles[0].text;
}

async function bundle(entry, outfile, name, plugins = []) {
  const script = `${HOLDS}\n${await textOf(entry, plugins)}`;
  check(name, script);
  await mkdir(dirname(outfile), { recursive: true });
  await writeFile(outfile, script);
}

/**
 * What makes a report's views live: the script, the digests by which a page allows it, and the styles. The script unpacks the views' own and
 * puts it into the page, which allows a script by its digest, whoever puts it there.
 */
async function bundlePage(outfile) {
  const views = await textOf(join(root, 'src/report/runtime.ts'), [
    inPlace,
    withoutParts('panel|engine|report')
  ]);
  const style = await textOf(join(root, 'src/report/page.css'));
  const script = `${HOLDS}
"DecompressionStream" in self && (async packed => {
  const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
  const script = document.createElement("script");
  script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  document.head.append(script);
})("${deflateSync(views, { level: 9 }).toString('base64')}");`;
  check('page', script);
  const digests = [script, views].map(text => createHash('sha256').update(text, 'utf8').digest('base64'));
  await mkdir(dirname(outfile), { recursive: true });
  await writeFile(outfile, JSON.stringify({ script, digests, style }));
}

/** What draws views where there is no labextension: the packed module, and the lines that bring it into a page, which know it by its digest. */
async function bundleModule(folder) {
  const sheet = name => textOf(join(root, `src/widgets/${name}.css`));
  const [style, dark] = [await sheet('module'), await textOf(join(root, 'src/widgets/alone-dark.css'))];
  const styles = {
    name: 'styles',
    setup(builder) {
      builder.onResolve({ filter: /^megalens-(dark-)?style$/ }, ({ path }) => ({ path, namespace: 'style' }));
      builder.onLoad({ filter: /.*/, namespace: 'style' }, ({ path }) => ({
        contents: path === 'megalens-style' ? style : dark,
        loader: 'text'
      }));
    }
  };
  const parts = [replacing(IN_PLACE), withoutParts('panel|engine|report'), styles];
  const module = `${HOLDS}\n${await textOf(join(root, 'src/widgets/module.ts'), parts, {}, 'esm')}`;
  const packed = deflateSync(module, { level: 9 });
  check('module', packed.toString('latin1'));
  const digest = createHash('sha256').update(packed).digest('hex');
  const define = { MODULE_DIGEST: JSON.stringify(digest) };
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'view-module.js.z'), packed);
  await writeFile(
    join(folder, 'view-loader.js'),
    await textOf(join(root, 'src/widgets/loader.ts'), [], define, 'esm')
  );
}

/** The page of the Jupyter server: of JupyterLab's packages what the extension uses, which it brings itself. */
async function bundleServed(folder) {
  const versions = {};
  for (const scope of ['@jupyterlab', '@jupyter-widgets', '@lumino']) {
    for (const name of await readdir(join(root, 'node_modules', scope))) {
      const at = `${scope}/${name}`;
      versions[at] = JSON.parse(
        await readFile(join(root, 'node_modules', at, 'package.json'), 'utf8')
      ).version;
    }
  }
  const react = JSON.parse(await readFile(join(root, 'node_modules/react/package.json'), 'utf8')).version;
  const script = `${HOLDS}\n${await textOf(join(root, 'src/page/index.ts'), [], {
    LIBRARY_VERSIONS: JSON.stringify({ ...versions, react }),
    'process.env.NODE_ENV': '"production"',
    process: '{"env":{},"argv":[]}',
    global: 'globalThis'
  })}`;
  check('served', script);
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'page.js'), script);
  await writeFile(join(folder, 'page.css'), await textOf(join(root, 'src/page/page.css')));
}

function check(name, script) {
  const most = MOST_BYTES[name] ?? Infinity;
  if (script.length > most) {
    throw new Error(
      `The ${name}'s script has ${script.length} bytes; at most ${most} were expected. See what it imports.`
    );
  }
  if (/<\/script/i.test(script)) {
    throw new Error(`The ${name}'s script holds a closing script tag, so it cannot stand inside a page.`);
  }
  console.log(`${name}: ${Math.round(script.length / 1000)} kB`);
}

if (process.argv[2] === undefined) {
  await bundle(join(root, 'src/engine/index.ts'), join(root, ENGINE), 'engine', [
    inPlace,
    withoutParts('panel')
  ]);
  await bundlePage(join(root, PAGE));
  await bundleModule(join(root, MODULE));
  await bundleServed(join(root, SERVED));
} else {
  // For tests: an entry of their own, and where to write it.
  await bundle(process.argv[2], process.argv[3], 'entry');
}
