// The page's code in Node: the product's own files, bundled as they are, and its worker in a thread. The first argument says what is measured.
import { tableFromIPC } from '@uwdata/flechette';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import { build } from 'esbuild';
import { UMAP } from 'umap-js';

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
async function load(entry) {
  return import(pathToFileURL(await bundle(entry)).href);
}

/** A factory of a worker of the product, behind the two handlers that the product's queue uses. */
async function workers(entry = 'src/aggregate/aggregate-worker.ts') {
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

/** Regroup moments. Every line of stdin is a way; its answer has the milliseconds, and sums that say whether it is right. */
async function moments() {
  const { groupMoments, MomentCache, WorkQueue } = await load('src/aggregate/index.ts');
  const queue = new WorkQueue(await workers());
  const cache = new MomentCache(queue);
  const arrow = tableFromIPC(readFileSync(process.argv[3]));
  const columns = arrow.toColumns();
  const names = JSON.parse(process.argv[4]);
  const source = sourceOf(columns, names);
  const ids = Int32Array.from(names, (_, id) => id);
  const layers = ids.map(id => Number(/layers\.(\d+)\./.exec(names[id])[1]));
  const known = {
    'layer × step': [layers, Math.max(...layers) + 1],
    'tensor × step': [ids, names.length],
    total: [ids.map(() => 0), 1]
  };
  const ask = (from, by) => groupMoments(from, { stat: 'grad', statistic: 'kurtosis', by }, undefined, cache);
  const ways = {
    // A source that the cache has not met: its rows are brought and handed to the worker first.
    load: async () => (await ask({ ...source }, [])).value
  };
  for (const [question, by] of Object.entries(BY)) {
    ways[`product ${question}`] = async () => (await ask(source, by)).value;
    ways[`bare ${question}`] = async () => bare(columns, ...known[question]);
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const way = JSON.parse(line);
    const start = performance.now();
    const values = await ways[way]();
    const ms = performance.now() - start;
    console.log(JSON.stringify({ ms, sums: { groups: values.length, kurtosis: exactSum(values) } }));
  }
  queue.dispose();
}

const BY = { 'layer × step': ['layer'], 'tensor × step': ['name'], total: [] };

/** A run in memory, as a store answers it: copies of its columns. */
function sourceOf(columns, names) {
  const steps = columns.step;
  const floats = ['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max'];
  const filled = value => new Float64Array(steps.length).fill(value);
  const stat = {
    stat: 'grad',
    rows: steps.length,
    first: steps[0],
    last: steps[steps.length - 1],
    steps: new Set(steps).size
  };
  return {
    index: async () => ({ version: '1', stats: [stat], names, samples: false, warnings: [] }),
    rows: async () => ({
      stat: [],
      names,
      nameId: columns.name_id.slice(),
      step: steps.slice(),
      samples: filled(-1),
      rank: new Int32Array(steps.length).fill(-1),
      stage: new Int32Array(steps.length).fill(-1),
      gradientStage: new Int32Array(steps.length),
      ...Object.fromEntries(floats.map(name => [name, columns[name].slice()])),
      nanCount: filled(0),
      infCount: filled(0),
      nearZeroCount: filled(NaN),
      rounding: filled(0),
      lossScale: filled(1)
    })
  };
}

/** What a person would write for exactly these rows: groups of names known beforehand, no filter, no gaps, kurtosis and nothing else. */
function bare({ step, name_id, count, mean, m2, m3, m4 }, groupOf, groups) {
  const steps = step[step.length - 1];
  const cells = groups * steps;
  const n = new Float64Array(cells);
  const middle = new Float64Array(cells);
  const two = new Float64Array(cells);
  const four = new Float64Array(cells);
  for (let row = 0; row < step.length; row += 1) {
    const cell = (step[row] - 1) * groups + groupOf[name_id[row]];
    n[cell] += count[row];
    middle[cell] += count[row] * mean[row];
  }
  for (let cell = 0; cell < cells; cell += 1) {
    middle[cell] /= n[cell];
  }
  for (let row = 0; row < step.length; row += 1) {
    const cell = (step[row] - 1) * groups + groupOf[name_id[row]];
    const d = mean[row] - middle[cell];
    const square = d * d;
    two[cell] += m2[row] + count[row] * square;
    four[cell] += m4[row] + 4 * d * m3[row] + 6 * square * m2[row] + count[row] * square * square;
  }
  return n.map((size, cell) => (four[cell] * size) / (two[cell] * two[cell]));
}

/** What a page asks of its worker for a projection. Every line of stdin is `[way, points, columns, file]` (float32, row-major). */
async function projections() {
  const { ProjectionQueue, Projector } = await load('src/instruments/generation/projection/projector.ts');
  const queue = new ProjectionQueue(
    await workers('src/instruments/generation/projection/projection-worker.ts')
  );
  const projector = new Projector(queue);
  // Started before it is measured.
  await queue.executorFor();
  const components = (points, standardise = false) =>
    projector.components(() => ({ ...points, values: points.values.slice() }), 2, standardise);
  const ways = {
    components: async points => {
      const { ratios, residual } = await components(points);
      return { ratios: [...ratios], residual };
    },
    umap: async points => {
      const { features, scores } = await components(points);
      const run = projector.umap(features, scores, { neighbors: 15, seed: 0 });
      let told = 0;
      while (!run.isDone) {
        await run.next();
        told += 1;
      }
      return { told, seen: run.state.seen };
    },
    'umap-js': async ({ rows, columns, values }) => {
      const data = Array.from({ length: rows }, (_, row) => [
        ...values.subarray(row * columns, (row + 1) * columns)
      ]);
      new UMAP({ nNeighbors: 15 }).fit(data);
      return {};
    }
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const [way, rows, columns, file] = JSON.parse(line);
    const bytes = readFileSync(file);
    const values = new Float32Array(
      bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
    );
    const points = { rows, columns, values };
    const [begun, used] = [performance.now(), process.cpuUsage()];
    const { result, longest } = await blocked(() => ways[way](points));
    const { user, system } = process.cpuUsage(used);
    const ms = performance.now() - begun;
    console.log(JSON.stringify({ ms, processor: (user + system) / 1000, blocked: longest, ...result }));
  }
  queue.dispose();
}

/** Longest time, ms, in which nothing else could run on the page's thread while something is waited for. */
async function blocked(work) {
  let [longest, last] = [0, performance.now()];
  const beat = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  }, 1);
  const result = await work();
  longest = Math.max(longest, performance.now() - last);
  clearInterval(beat);
  return { result, longest };
}

/** How long plans take: medians of several runs, ms. */
async function planning() {
  const plan = await load('src/instruments/pipeline/plan/index.ts');
  const times = {
    forward: 10,
    input_gradient: 11,
    weight_gradient: 9,
    latency: 0.5,
    activation_bytes: 1e8,
    weight_bytes: 1e9
  };

  async function median(count, run) {
    const found = [];
    for (let at = 0; at < count; at += 1) {
      const began = performance.now();
      await run();
      found.push(performance.now() - began);
    }
    return found.sort((a, b) => a - b)[count >> 1];
  }

  const planned = (stages, micro_batches, schedules) =>
    plan.planAll({ stages, micro_batches, schedules, times });
  const answer = {
    simulate_ms: await median(5, () => planned(64, 512, ['1f1b'])),
    split_ms: await median(5, () => planned(64, 512, ['zb_h1'])),
    search_small_ms: await median(3, () => planned(4, 8, ['search'])),
    search_ms: await median(3, () => planned(16, 64, ['search']))
  };
  console.log(JSON.stringify(answer));
}

try {
  await { moments, projections, planning }[process.argv[2]]();
} finally {
  rmSync(folder, { recursive: true });
}
process.exit(0);
