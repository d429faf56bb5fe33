import { build } from 'esbuild';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join, resolve } from 'node:path';

const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' };

/** A running harness. */
export interface IHarness {
  url: string;
  close(): Promise<void>;
}

/** Bundle the page and serve it on loopback. */
export async function serve(): Promise<IHarness> {
  const folder = await mkdtemp(join(tmpdir(), 'megalens-harness-'));
  const here = resolve(__dirname);
  await build({
    entryPoints: [join(here, 'page.ts')],
    bundle: true,
    splitting: true,
    format: 'esm',
    outdir: folder,
    logLevel: 'error'
  });
  // The builder of the extension makes a file of each worker; here they are made beside the page.
  await build({
    entryPoints: [
      resolve(here, '../../src/aggregate/aggregate-worker.ts'),
      resolve(here, '../../src/instruments/generation/projection/projection-worker.ts')
    ],
    entryNames: '[name]',
    bundle: true,
    format: 'esm',
    outdir: folder,
    logLevel: 'error'
  });
  const fixed: Record<string, string> = {
    '/index.html': join(here, 'index.html'),
    '/views.css': resolve(here, '../../style/views.css'),
    '/moments.css': resolve(here, '../../style/moments.css')
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
  return {
    url: `http://127.0.0.1:${port}/`,
    close: async () => {
      server.closeAllConnections();
      await new Promise(done => server.close(done));
      await rm(folder, { recursive: true, force: true });
    }
  };
}
