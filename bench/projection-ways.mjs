// What a page asks of its worker for a projection. Reads `<way> <points> <columns> <file>` from stdin (float32, row-major), runs it once, answers one JSON line.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { UMAP } from 'umap-js';
import { load, tidy, workers } from './node-side.mjs';

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

try {
  const folder = 'src/instruments/generation/projection';
  const { ProjectionQueue, Projector } = await load(`${folder}/projector.ts`);
  const queue = new ProjectionQueue(await workers(`${folder}/projection-worker.ts`));
  const projector = new Projector(queue);
  // Started before it is measured.
  await queue.placeOf();
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
    const [way, rows, columns, file] = line.split(' ');
    const bytes = readFileSync(file);
    const values = new Float32Array(
      bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
    );
    const points = { rows: Number(rows), columns: Number(columns), values };
    const [begun, used] = [performance.now(), process.cpuUsage()];
    const { result, longest } = await blocked(() => ways[way](points));
    const { user, system } = process.cpuUsage(used);
    const ms = performance.now() - begun;
    console.log(JSON.stringify({ ms, processor: (user + system) / 1000, blocked: longest, ...result }));
  }
  queue.dispose();
} finally {
  tidy();
}
