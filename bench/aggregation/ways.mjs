// The three JavaScript ways of the aggregation benchmark. Reads the name of a way from stdin, runs it once, answers one JSON line.
import { readFileSync } from 'node:fs';
import { tableFromIPC } from '@uwdata/flechette';
import { fromArrow, op } from 'arquero';
import { answerLines, exactSum, load, tidy, workers } from '../node-side.mjs';

const STATISTICS = ['mean', 'std', 'min', 'max', 'rms'];

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

try {
  const { WorkQueue } = await load('src/aggregate/work-queue.ts');
  const queue = new WorkQueue(await workers());
  const arrow = tableFromIPC(readFileSync(process.argv[2]));
  const columns = arrow.toColumns();
  const rows = { step: columns.step, layer: columns.layer, value: columns.value };
  const table = fromArrow(arrow);
  const ways = {
    product: async () => (await queue.roll(rows, STATISTICS)).statistics,
    arquero: async () => plainArquero(table),
    bare: async () => bare(rows)
  };
  await answerLines(ways, result => ({
    groups: result.mean.length,
    ...Object.fromEntries(STATISTICS.map(name => [name, exactSum(result[name])]))
  }));
  queue.dispose();
} finally {
  tidy();
}
