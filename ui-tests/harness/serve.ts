import { build } from 'esbuild';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join, resolve } from 'node:path';

const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };
const HERE = resolve(__dirname);
/** Scripts that show a widget of the panel, each alone in a page without JupyterLab. */
const WIDGETS = ['fit-page', 'panel-page'];

/** Where the page is served, as those who use it are told. */
export const URL_VARIABLE = 'MEGALENS_HARNESS_URL';

/** Bundle the page and the widgets, and serve them on loopback, once for all tests: what is bundled is the same for each of them. */
export default async function serve(): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'megalens-harness-'));
  const common = { bundle: true, outdir: folder, logLevel: 'error' } as const;
  await Promise.all([
    build({
      ...common,
      entryPoints: [join(HERE, 'page.ts')],
      alias: { megalens: join(HERE, 'megalens.ts') },
      splitting: true,
      format: 'esm'
    }),
    // The builder of the extension makes a file of each worker; here they are made beside the page.
    build({
      ...common,
      entryPoints: [
        resolve(HERE, '../../src/aggregate/aggregate-worker.ts'),
        resolve(HERE, '../../src/instruments/generation/projection/projection-worker.ts')
      ],
      entryNames: '[name]',
      format: 'esm'
    }),
    build({
      ...common,
      entryPoints: WIDGETS.map(name => join(HERE, `${name}.ts`)),
      format: 'iife',
      loader: { '.svg': 'text', '.css': 'empty' },
      define: {
        'process.env.NODE_ENV': '"production"',
        process: '{"env":{},"argv":[]}',
        global: 'globalThis'
      }
    })
  ]);
  const fixed: Record<string, string> = {
    '/index.html': join(HERE, 'index.html'),
    '/views.css': resolve(HERE, '../../style/views.css'),
    '/moments.css': resolve(HERE, '../../style/moments.css'),
    '/overview.css': resolve(HERE, '../../style/overview.css')
  };
  const server = createServer((request, response) => {
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    const file = fixed[path === '/' ? '/index.html' : path] ?? join(folder, path.replace(/[^\w.-]/g, ''));
    readFile(file).then(
      body => response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'text/plain' }).end(body),
      () => response.writeHead(404).end()
    );
  });
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  // Workers start with this environment.
  process.env[URL_VARIABLE] = `http://127.0.0.1:${port}/`;
  return async () => {
    server.closeAllConnections();
    await new Promise(done => server.close(done));
    await rm(folder, { recursive: true, force: true });
  };
}
