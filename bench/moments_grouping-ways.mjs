// The two JavaScript ways of regrouping moments. Reads `<way> <question>` from stdin, runs it once, answers one JSON line.
import { readFileSync } from 'node:fs';
import { tableFromIPC } from '@uwdata/flechette';
import { answerLines, exactSum, load, tidy, workers } from './node-side.mjs';

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

try {
  const { groupMoments, MomentCache, WorkQueue } = await load('src/aggregate/index.ts');
  const queue = new WorkQueue(await workers());
  const cache = new MomentCache(queue);
  const arrow = tableFromIPC(readFileSync(process.argv[2]));
  const columns = arrow.toColumns();
  const names = JSON.parse(process.argv[3]);
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
  await answerLines(ways, values => ({ groups: values.length, kurtosis: exactSum(values) }));
  queue.dispose();
} finally {
  tidy();
}
