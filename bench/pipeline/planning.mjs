// How long plans take in Node, with the product's own code: the median of several runs, ms, as JSON.
import { load } from '../node-side.mjs';

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
process.exit(0);
