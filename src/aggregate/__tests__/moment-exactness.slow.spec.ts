/** @jest-environment ./jest.environment.node.js */
import type { IMomentRows, MomentColumn } from '../../store';
import { parseName } from '../../protocol';
import { MomentTable, groupTables } from '..';

/** Random numbers that are the same in every run (mulberry32). */
function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Round to a binary format of so many significant bits, with the least exponent of its normal numbers. */
function rounding(bits: number, least: number): (value: number) => number {
  return value => {
    if (value === 0) {
      return 0;
    }
    const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), least) - bits + 1);
    return Math.round(value / unit) * unit;
  };
}

const DTYPES = [rounding(11, -14), rounding(8, -126), Math.fround];
const [NAMES, STEPS] = [250, 10];

interface ICase {
  readonly name: string;
  readonly step: number;
  readonly pieces: readonly {
    readonly rank: number;
    readonly stage: number;
    readonly values: readonly number[];
  }[];
}

/** Tensors of any scale, mean up to ten thousand deviations and any split over TP × PP × DP × micro-batches: one for each name at each step. */
function cases(random: () => number): ICase[] {
  return Array.from({ length: NAMES * STEPS }, (_, at) => {
    const id = at % NAMES;
    const round = DTYPES[Math.floor(random() * DTYPES.length)] ?? Math.fround;
    const scale = 10 ** (random() * 5 - 4);
    const mean = scale * (random() < 0.3 ? 0 : 10 ** (random() * 5 - 1)) * (random() < 0.5 ? -1 : 1);
    const heavy = random() < 0.3;
    const value = (): number => {
      const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
      return round(mean + scale * (heavy ? normal ** 3 : normal));
    };
    const split = 1 + Math.floor(random() * 8);
    return {
      name: `decoder.layers.${id % 12}.${id % 2 ? 'mlp' : 'attn'}.linear${id}.${id % 3 ? 'weight' : 'bias'}`,
      step: 1 + Math.floor(at / NAMES),
      pieces: Array.from({ length: split }, (__, piece) => ({
        rank: piece % 4,
        stage: piece % 2,
        values: Array.from({ length: 1 + Math.floor(random() * 24) }, value)
      }))
    };
  });
}

/** Sums of deviations about the mean, in two passes in float64. */
function central(values: readonly number[]): number[] {
  const first = values[0] ?? 0;
  const mean = first + values.reduce((sum, value) => sum + (value - first), 0) / values.length;
  const sums = [values.length, mean, 0, 0, 0];
  for (const value of values) {
    const d = value - mean;
    sums[2] = (sums[2] ?? 0) + d * d;
    sums[3] = (sums[3] ?? 0) + d * d * d;
    sums[4] = (sums[4] ?? 0) + d * d * d * d;
  }
  return sums;
}

function rowsOf(all: readonly ICase[]): IMomentRows {
  const pieces = all.flatMap(({ name, step, pieces: parts }) => parts.map(part => ({ name, step, ...part })));
  const names = [...new Set(all.map(({ name }) => name))];
  const ids = new Map(names.map((name, id) => [name, id]));
  const moments = pieces.map(({ values }) => central(values));
  const column = (read: (at: number) => number): Float64Array =>
    Float64Array.from(pieces, (_, at) => read(at));
  const moment = (power: number): Float64Array => column(at => moments[at]?.[power] ?? NaN);
  return {
    stat: [],
    names,
    nameId: Int32Array.from(pieces, ({ name }) => ids.get(name) ?? -1),
    rank: Int32Array.from(pieces, ({ rank }) => rank),
    stage: Int32Array.from(pieces, ({ stage }) => stage),
    gradientStage: new Int32Array(pieces.length),
    step: column(at => pieces[at]?.step ?? 0),
    samples: column(() => -1),
    count: moment(0),
    mean: moment(1),
    m2: moment(2),
    m3: moment(3),
    m4: moment(4),
    min: column(at => Math.min(...(pieces[at]?.values ?? []))),
    max: column(at => Math.max(...(pieces[at]?.values ?? []))),
    nanCount: column(() => 0),
    infCount: column(() => 0),
    nearZeroCount: column(() => 0),
    rounding: column(() => 0),
    lossScale: column(() => 1)
  };
}

/** What the values themselves say, grouped as the columns say. */
function truth(all: readonly ICase[], by: readonly MomentColumn[]): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  for (const { name, step, pieces } of all) {
    const said: Record<string, unknown> = { ...parseName(name), name };
    for (const { rank, stage, values } of pieces) {
      const columns: Record<string, unknown> = { ...said, rank, stage };
      const key = JSON.stringify([step, ...by.map(column => columns[column])]);
      const group = groups.get(key) ?? [];
      groups.set(key, group);
      values.forEach(value => group.push(value));
    }
  }
  return groups;
}

/** Every statistic of values, and what a distance from it is measured against. */
function read(values: readonly number[]): Record<string, readonly [number, number]> {
  const [n = 0, mean = 0, m2 = 0, , m4 = 0] = central(values);
  const variance = m2 / n;
  const rms = Math.sqrt(variance + mean * mean);
  const against = (wanted: number): readonly [number, number] => [wanted, Math.abs(wanted)];
  return {
    mean: [mean, rms],
    std: against(Math.sqrt(variance)),
    l2: against(rms * Math.sqrt(n)),
    rms: against(rms),
    min: against(values.reduce((low, value) => Math.min(low, value))),
    max: against(values.reduce((high, value) => Math.max(high, value))),
    kurtosis: against(variance > 0 ? m4 / n / (variance * variance) : NaN)
  };
}

function off(found: number, [wanted, against]: readonly [number, number] = [NaN, NaN]): number {
  const same = found === wanted || (Number.isNaN(found) && Number.isNaN(wanted));
  const apart = Math.abs(found - wanted) / against;
  // An answer where there is none, or none where there is one, is infinitely far off.
  return same ? 0 : Number.isNaN(apart) ? Infinity : apart;
}

describe('any grouping of any split', () => {
  const all = cases(dice(20261121));
  const table = new MomentTable('grad');
  table.append(rowsOf(all));

  // `name` alone is each of 2,500 tensors, merged of its pieces.
  const groupings: readonly (readonly MomentColumn[])[] = [
    ['name'],
    ['layer'],
    ['rank', 'stage'],
    ['family', 'rank'],
    ['item_type', 'rank'],
    ['layer', 'kind', 'stage'],
    []
  ];

  it.each(groupings.map(by => ({ by })))('says what its values say: by $by', ({ by }) => {
    const wanted = new Map([...truth(all, by)].map(([key, values]) => [key, read(values)]));
    const worst: Record<string, number> = {};
    for (const statistic of ['mean', 'std', 'l2', 'rms', 'min', 'max', 'kurtosis'] as const) {
      const found = groupTables([table], { stat: 'grad', statistic, by });
      expect(found.step).toHaveLength(wanted.size);
      worst[statistic] = found.value.reduce((most, value, row) => {
        const key = JSON.stringify([found.step[row], ...(found.keys[found.group[row] ?? 0] ?? [])]);
        return Math.max(most, off(value, wanted.get(key)?.[statistic]));
      }, 0);
    }
    const { kurtosis, ...others } = worst;
    expect(wanted.size).toBeGreaterThanOrEqual(by[0] === 'name' ? NAMES * STEPS : STEPS);
    expect(Math.max(...Object.values(others))).toBeLessThan(1e-6);
    expect(kurtosis).toBeLessThan(1e-4);
  });
});
