// What the JavaScript sides of benchmarks share: the product's own files, bundled as they are, and its worker in a thread of Node.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const folder = mkdtempSync(join(tmpdir(), 'megalens-bench-'));

async function bundle(entry, banner) {
  const outfile = join(folder, entry.replace(/\W+/g, '-') + '.mjs');
  await build({
    entryPoints: [join(root, entry)],
    bundle: true,
    outfile,
    format: 'esm',
    platform: 'node',
    external: ['./open-worker'],
    banner: { js: banner ?? '' }
  });
  return outfile;
}

/** Load one TypeScript file of the product. */
export async function load(entry) {
  return import(pathToFileURL(await bundle(entry)).href);
}

/** A factory of a worker of the product, behind the two handlers that the product's queue uses. */
export async function workers(entry = 'src/aggregate/aggregate-worker.ts') {
  const port =
    "import { parentPort } from 'node:worker_threads';" +
    'globalThis.postMessage = (message, transfer) => parentPort.postMessage(message, transfer);' +
    "parentPort.on('message', data => globalThis.onmessage({ data }));";
  const file = await bundle(entry, port);
  return async () => {
    const worker = new Worker(file);
    const face = {
      onmessage: null,
      onerror: null,
      postMessage: (message, transfer) => worker.postMessage(message, transfer),
      terminate: () => worker.terminate()
    };
    worker.on('message', data => face.onmessage?.({ data }));
    worker.on('error', error => face.onerror?.(error));
    return face;
  };
}

/** Sum without the rounding of a million additions. */
export function exactSum(column) {
  let sum = 0;
  let rest = 0;
  for (const value of column) {
    const next = sum + value;
    rest += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum;
    sum = next;
  }
  return sum + rest;
}

/** Answer every line of stdin with one line of JSON: the milliseconds of the way that it names, and sums that say whether it is right. */
export async function answerLines(ways, sumsOf) {
  for await (const way of createInterface({ input: process.stdin })) {
    const start = performance.now();
    const result = await ways[way]();
    const ms = performance.now() - start;
    console.log(JSON.stringify({ ms, sums: sumsOf(result) }));
  }
}

/** Remove the bundles. */
export function tidy() {
  rmSync(folder, { recursive: true });
}
