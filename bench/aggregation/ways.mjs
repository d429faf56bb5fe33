// The three JavaScript ways of the aggregation benchmark. Reads the name of a way from stdin, runs it once, answers one JSON line.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { tableFromIPC } from '@uwdata/flechette';
import { fromArrow, op } from 'arquero';
import { build } from 'esbuild';

const STATISTICS = ['mean', 'std', 'min', 'max', 'rms'];
const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const folder = mkdtempSync(join(tmpdir(), 'megalens-bench-'));

/** Bundle one TypeScript file of the product, as it is. */
async function bundle(entry, banner) {
  const outfile = join(folder, entry.replace(/\W+/g, '-') + '.mjs');
  await build({
    entryPoints: [join(root, 'src/aggregate', entry)],
    bundle: true,
    outfile,
    format: 'esm',
    platform: 'node',
    external: ['./open-worker'],
    banner: { js: banner ?? '' }
  });
  return outfile;
}

/** The product's worker file behind the two handlers that the product's queue uses. */
function nodeWorker(file) {
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
}

/** What a person would write for exactly this shape of rows: the groups are known, nothing is checked. */
function bare({ step, layer, value }) {
  const layers = 24;
  const groups = step[step.length - 1] * layers;
  const count = new Float64Array(groups);
  const sum = new Float64Array(groups);
  const squares = new Float64Array(groups);
  const deviation = new Float64Array(groups);
  const min = new Float64Array(groups).fill(Infinity);
  const max = new Float64Array(groups).fill(-Infinity);
  for (let row = 0; row < value.length; row += 1) {
    const group = (step[row] - 1) * layers + layer[row] - 1;
    const number = value[row];
    count[group] += 1;
    sum[group] += number;
    squares[group] += number * number;
    if (number < min[group]) {
      min[group] = number;
    }
    if (number > max[group]) {
      max[group] = number;
    }
  }
  const mean = sum.map((total, group) => total / count[group]);
  for (let row = 0; row < value.length; row += 1) {
    const group = (step[row] - 1) * layers + layer[row] - 1;
    const apart = value[row] - mean[group];
    deviation[group] += apart * apart;
  }
  const std = deviation.map((total, group) => Math.sqrt(total / count[group]));
  const rms = squares.map((total, group) => Math.sqrt(total / count[group]));
  const there = Array.from(count.keys()).filter(group => count[group] > 0);
  const whole = there.length === groups;
  const pick = column => (whole ? column : Float64Array.from(there, group => column[group]));
  return Object.fromEntries(
    Object.entries({ mean, std, min, max, rms }).map(([name, column]) => [name, pick(column)])
  );
}

function plainArquero(table) {
  const rolled = table.groupby('step', 'layer').rollup({
    mean: d => op.mean(d.value),
    std: d => op.stdevp(d.value),
    min: d => op.min(d.value),
    max: d => op.max(d.value),
    rms: d => op.sqrt(op.mean(d.value * d.value))
  });
  return Object.fromEntries(STATISTICS.map(name => [name, rolled.array(name)]));
}

/** Sum without the rounding of a million additions. */
function exactSum(column) {
  let sum = 0;
  let rest = 0;
  for (const value of column) {
    const next = sum + value;
    rest += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum;
    sum = next;
  }
  return sum + rest;
}

try {
  const { WorkQueue } = await import(pathToFileURL(await bundle('work-queue.ts')).href);
  const port =
    "import { parentPort } from 'node:worker_threads';" +
    'globalThis.postMessage = (message, transfer) => parentPort.postMessage(message, transfer);' +
    "parentPort.on('message', data => globalThis.onmessage({ data }));";
  const workerFile = await bundle('aggregate-worker.ts', port);
  const queue = new WorkQueue(async () => nodeWorker(workerFile));
  const arrow = tableFromIPC(readFileSync(process.argv[2]));
  const columns = arrow.toColumns();
  const rows = { step: columns.step, layer: columns.layer, value: columns.value };
  const table = fromArrow(arrow);
  const ways = {
    product: async () => (await queue.roll(rows, STATISTICS)).statistics,
    arquero: async () => plainArquero(table),
    bare: async () => bare(rows)
  };
  for await (const way of createInterface({ input: process.stdin })) {
    const start = performance.now();
    const result = await ways[way]();
    const ms = performance.now() - start;
    const sums = Object.fromEntries(STATISTICS.map(name => [name, exactSum(result[name])]));
    console.log(JSON.stringify({ ms, sums: { groups: result.mean.length, ...sums } }));
  }
  queue.dispose();
} finally {
  rmSync(folder, { recursive: true });
}
