// Bundles, before the specs run, the packages that ship many small ES modules into two scripts. A spec otherwise resolves, reads, transforms and
// compiles each of a thousand files anew, which takes it longer than what it tests.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire, builtinModules } from 'node:module';
import { join } from 'node:path';

const require = createRequire(import.meta.url);
const { FOLDER, KEPT, PACKAGES } = require('./jest-packages.cjs');
const root = join(import.meta.dirname, '..');
const STUB = join(root, 'jest.stub.js');

/** Each package as a module of its own, whose parts are evaluated when a spec first asks for it. */
const onDemand = {
  name: 'on-demand',
  setup(builder) {
    builder.onResolve({ filter: /^on-demand:/ }, ({ path }) => ({
      path: path.slice('on-demand:'.length),
      namespace: 'on-demand'
    }));
    builder.onLoad({ filter: /.*/, namespace: 'on-demand' }, ({ path }) => ({
      contents: `export * from '${path}'; import * as all from '${path}'; export default all['default'];`,
      resolveDir: root
    }));
    builder.onResolve({ filter: /\.(css|svg)$/ }, () => ({ path: STUB }));
    // As in jest.config.js.
    builder.onResolve({ filter: /^vega-canvas$/ }, () => ({
      path: join(root, 'node_modules/vega-canvas/build/vega-canvas.browser.js')
    }));
  }
};

async function bundle(name, packages) {
  const outfile = join(root, FOLDER, `${name}.js`);
  const entries = packages.map(each => `${JSON.stringify(each)}: () => require('on-demand:${each}')`);
  const { metafile } = await build({
    stdin: { contents: `module.exports = { ${entries.join(',\n')} };`, resolveDir: root },
    metafile: true,
    outfile,
    bundle: true,
    format: 'cjs',
    platform: 'browser',
    target: 'es2022',
    minifyWhitespace: true,
    legalComments: 'none',
    banner: {
      js: `{ const { all } = globalThis[Symbol.for('${KEPT.description}')]; require = name => all[name]; }`
    },
    external: ['ws', ...builtinModules, 'node:*'],
    plugins: [onDemand],
    logLevel: 'error'
  });
  // All that is not in the bundle is asked for at once: `require` ends with the spec file that is the first to ask for the bundle, which is kept for others.
  const outside = Object.values(metafile.outputs)
    .flatMap(({ imports }) => imports)
    .filter(({ external }) => external)
    .map(({ path }) => JSON.stringify(path));
  await writeFile(
    join(root, FOLDER, `${name}.kept.js`),
    `const kept = (globalThis[Symbol.for('${KEPT.description}')] ??= {});
if (!kept['${name}']) {
  const all = Object.fromEntries([${[...new Set(outside)]}].map(each => [each, require(each)]));
  kept.all = all;
  kept['${name}'] = require('./${name}.js');
}
module.exports = kept['${name}'];
`
  );
  for (const each of packages) {
    const file = join(root, FOLDER, `${each.replaceAll('/', '+')}.js`);
    await writeFile(file, `module.exports = require('./${name}.kept.js')[${JSON.stringify(each)}]();\n`);
  }
}

export default async function prepare() {
  const hash = createHash('sha256');
  for (const file of [
    'package-lock.json',
    'scripts/jest-packages.mjs',
    'scripts/jest-packages.cjs',
    'jest.stub.js'
  ]) {
    hash.update(await readFile(join(root, file)));
  }
  const key = hash.digest('hex');
  const stamp = join(root, FOLDER, 'made-from');
  if ((await readFile(stamp, 'utf8').catch(() => '')) === key) {
    return;
  }
  await mkdir(join(root, FOLDER), { recursive: true });
  await Promise.all(Object.entries(PACKAGES).map(([name, packages]) => bundle(name, packages)));
  await writeFile(stamp, key);
}
