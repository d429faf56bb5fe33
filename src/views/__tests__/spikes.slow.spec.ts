/** @jest-environment ./jest.environment.node.js */
import { histogramsOf } from '../../aggregate';
import { sized } from '../../charts';
import { readPicture } from '../../charts/__tests__/read-png';
import type { ViewOptions } from '../../protocol/views.generated';
import { MemoryRun, rowOf } from '../../store/__tests__/memory-run';
import { DistributionPicture } from '../distribution/distribution-picture';
import { distributionQuantiles, distributionRidges } from '../distribution/distribution-recipe';
import { untranslated } from '../shared/translate';
import { readView } from '../still';
import { histogramRow } from './histogram-row';

// Fewer steps than pixels, about as many, and more than any picture has: what is left out of 100,000 is tested where it is left out, in aggregate/.
const WIDTHS = [300, 3000];
const SPIKE = 1000;
const [USUAL, HIGH] = [rowOf(histogramRow(0, [1])), rowOf(histogramRow(0, [SPIKE]))];

/** The value of a step: about 1, and of one step 1,000. */
const valueAt = (step: number, spike: number): number => (step === spike ? SPIKE : 1 + (step % 10) / 100);

/** What is told of one step, by tensors, statistics and numbers. */
function runOf(steps: number, spike: number): MemoryRun {
  const run = new MemoryRun();
  run.connection = { kind: 'recorded' };
  run.limitBytes = 1 << 28;
  for (let step = 0; step < steps; step += 1) {
    run.moments?.add({ step, name: 'layers.0.w', std: valueAt(step, spike) });
  }
  run.units = { loss: 'nats' };
  run.numbers = Array.from({ length: steps }, (_, step) => ({
    step,
    name: 'loss',
    value: valueAt(step, spike)
  }));
  return run;
}

/** How many colours the pictures of a view have, and the greatest height of its lines. */
async function seen(run: MemoryRun, options: ViewOptions, width: number): Promise<[number, number]> {
  const colors = new Set<number>();
  const heights: number[] = [0];
  for (const { recipe } of await readView(run, options, { width })) {
    for (const { url } of recipe?.datasets['pictures'] ?? []) {
      const picture = readPicture(url);
      expect(picture.width).toBeLessThanOrEqual(recipe?.width ?? 0);
      new Uint32Array(picture.data.buffer).forEach(color => colors.add(color));
    }
    for (const { value } of recipe?.datasets['rows'] ?? []) {
      heights.push(Number(value));
    }
  }
  return [colors.size, Math.max(...heights.filter(Number.isFinite))];
}

it.each([10, 1000, 20_000])('a spike of %i steps is seen in Statistics and Scalars', async steps => {
  const run = runOf(steps, Math.floor(steps * 0.617));
  const statistics: ViewOptions = { view: 'statistics', stat: 'grad', statistic: 'rms', by: ['name'] };
  for (const width of WIDTHS) {
    expect((await seen(run, { ...statistics, kind: 'map' }, width))[0]).toBe(2);
    expect((await seen(run, { ...statistics, kind: 'lines' }, width))[1]).toBeCloseTo(SPIKE);
    expect((await seen(run, { view: 'scalars' }, width))[1]).toBe(SPIKE);
  }
});

it.each([10, 1000, 20_000])('a spike of %i steps is seen in the Overview', async steps => {
  const run = runOf(steps, Math.floor(steps * 0.617));
  for (const width of [600, 3000]) {
    const [colors, height] = await seen(run, { view: 'overview' }, width);
    const [without] = await seen(runOf(steps, NaN), { view: 'overview' }, width);
    // All but the spike have ten values, whatever the range of the colours.
    expect([width, height, without <= 11, colors >= 2]).toEqual([width, SPIKE, true, true]);
  }
});

it('a spike of 5,000 steps is seen in Trend', async () => {
  const run = runOf(0, 0);
  for (let step = 0; step < 5000; step += 1) {
    run.rows.push(tensor(step, Float32Array.of(valueAt(step, 3333))));
  }
  const trend = { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'kept_max' } as const;
  for (const width of WIDTHS) {
    expect((await seen(run, { ...trend, kind: 'heatmap' }, width))[0]).toBe(2);
  }
  expect((await seen(run, { ...trend, kind: 'lines' }, 850))[1]).toBe(SPIKE);
});

it.each([10, 1000, 20_000])('a spike of %i steps is seen in the map of History', async steps => {
  const run = runOf(0, 0);
  const spike = Math.floor(steps * 0.617);
  for (let step = 0; step < steps; step += 1) {
    run.rows.push(tensor(step, Float32Array.of(valueAt(step, spike), 1)));
  }
  const history = { view: 'history', flag: 'MLP1_mat_mul', statistic: 'kept_max' } as const;
  for (const width of WIDTHS) {
    const [map] = await readView(run, history, { width });
    const picture = readPicture(map?.recipe?.datasets['pictures']?.[0]?.['url']);
    expect([width, new Set(new Uint32Array(picture.data.buffer)).size]).toEqual([width, 2]);
  }
});

it.each([10, 1000, 20_000])('the one step of %i with other values is seen in Distribution', async steps => {
  const run = runOf(0, 0);
  const spike = Math.floor(steps * 0.617);
  run.rows = Array.from({ length: steps }, (_, step) => ({ ...(step === spike ? HIGH : USUAL), step }));
  const options = { view: 'distribution', flag: 'MLP1_mat_mul' } as const;
  for (const width of WIDTHS) {
    const [map] = await readView(run, { ...options, kind: 'map' }, { width });
    const { data, width: across, height } = readPicture(map?.recipe?.datasets['pictures']?.[0]?.['url']);
    const cells = new Uint32Array(data.buffer);
    const [upper, lower] = [cells.subarray(0, (across * height) / 2), cells.subarray((across * height) / 2)];
    // All values are in one bin at every step: its colour is that of the greatest share, above and below.
    const greatest = [...new Set(lower)].filter(color => color !== upper[0]);
    expect([width, greatest.length]).toEqual([width, 1]);
    expect([width, upper.includes(greatest[0]!)]).toEqual([width, true]);
  }
  const [quantiles] = await readView(run, { ...options, kind: 'quantiles' }, { width: 850 });
  expect(Math.max(...(quantiles?.recipe?.datasets['rows'] ?? []).map(({ value }) => Number(value)))).toBe(
    SPIKE
  );
  expect(quantiles?.recipe?.datasets['rows']?.length).toBeLessThan(15_000);
  const [ridges] = await readView(run, { ...options, kind: 'ridgeline' }, { width: 850 });
  expect(ridges?.recipe?.params['keyText']).toContain(String(spike));
});

it('the one step of 100,000 with other values is in the pixels and lines of Distribution', () => {
  const spike = 61_803;
  const rows = Array.from({ length: 100_000 }, (_, step) => ({ ...(step === spike ? HIGH : USUAL), step }));
  const wish = { data: histogramsOf(rows)!, isSampled: false, transform: 'linear', range: null } as const;
  const { recipe: map } = new DistributionPicture(untranslated).draw('map', wish, false);
  for (const width of WIDTHS) {
    const picture = readPicture(sized(map, width).datasets['pictures']?.[0]?.['url']);
    const cells = new Uint32Array(picture.data.buffer);
    // The upper half has nothing but that step.
    const at = cells.subarray(0, cells.length / 2).findIndex(Boolean) % picture.width;
    expect(Math.abs(at - (spike / rows.length) * picture.width)).toBeLessThan(2);
  }
  const lines = distributionQuantiles(wish, untranslated).recipe.datasets['rows'] ?? [];
  expect([lines.length < 15_000, Math.max(...lines.map(({ value }) => Number(value)))]).toEqual([
    true,
    SPIKE
  ]);
  expect(distributionRidges(wish, untranslated).recipe.params['keyText']).toContain(String(spike));
});

it('one step of each so many leaves no hole in Distribution, and missing steps do', () => {
  // Of each four steps any one; none of steps 400 to 599.
  const steps = Array.from({ length: 250 }, (_, at) => 4 * at + (((at * 7) % 11) & 3));
  const rows = steps.filter(step => step < 400 || step >= 600).map(step => ({ ...USUAL, step }));
  const wish = { data: histogramsOf(rows)!, isSampled: true, transform: 'linear', range: null } as const;
  const { recipe: map } = new DistributionPicture(untranslated).draw('map', wish, false);
  const { data, width } = readPicture(map.datasets['pictures']?.[0]?.['url']);
  const cells = new Uint32Array(data.buffer);
  const hasValue = new Uint8Array(width);
  const empty = cells[0];
  cells.forEach((color, at) => (hasValue[at % width]! |= Number(color !== empty)));
  const holes = [...hasValue.keys()].filter(at => !hasValue[at]);
  expect(holes.length).toBeGreaterThan(0.17 * width);
  expect(holes.length).toBeLessThan(0.22 * width);
  expect(holes[holes.length - 1]! - holes[0]!).toBe(holes.length - 1);
});

it.each(WIDTHS)(
  'bins that hold nothing are empty in Distribution %i wide, and hide no share',
  async width => {
    const run = runOf(0, 0);
    const [most, few] = [[1, 1, 1, -1], [-1]].map(values => rowOf(histogramRow(0, values)));
    // At one step of 1,000 no value is in the upper bin: what shares its pixel has three of four there.
    run.rows = Array.from({ length: 1000 }, (_, step) => ({ ...(step === 617 ? few! : most!), step }));
    const [map] = await readView(run, { view: 'distribution', flag: 'MLP1_mat_mul' }, { width });
    const { data, width: across, height } = readPicture(map?.recipe?.datasets['pictures']?.[0]?.['url']);
    const cells = new Uint32Array(data.buffer);
    const rows = Array.from({ length: height }, (_, row) => [
      ...new Set(cells.subarray(row * across, (row + 1) * across))
    ]);
    const shown = rows.filter(colors => colors.some(color => color !== 0));
    // From the greatest values to the least: those of one bin, nothing between, those of the other.
    expect([shown.length, rows[height >> 1]]).toEqual([2, [0]]);
    expect(shown.map(colors => colors.includes(0))).toEqual([width > 1000, false]);
    expect(shown[1]).toHaveLength(2);
  }
);

const tensor = (step: number, values: Float32Array): MemoryRun['rows'][number] =>
  rowOf({ step, layer: 0, shape: [1, values.length, 1], values });
