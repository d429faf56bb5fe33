/** @jest-environment ./jest.environment.node.js */

import { channels, ColorScale } from '../../charts/color-scale';
import type { IRecipe } from '../../charts';
import { readPicture } from '../../charts/__tests__/read-png';
import type { ViewOptions } from '../../protocol/views.generated';
import { MemoryRun } from '../../store/__tests__/memory-run';
import { colorRangeControl, lockedWords } from '../shared/controls';
import { readView } from '../still';

const VALUES = [-3, -1, 0, 0.5, 1, 8];

function runOf(): MemoryRun {
  const run = new MemoryRun();
  run.add({ step: 1, layer: 0, shape: [1, 6, 1], values: Float32Array.from(VALUES) });
  run.add({ step: 2, layer: 0, shape: [1, 6, 1], values: Float32Array.from(VALUES, value => value / 10) });
  const name = 'decoder.layers.0.mlp.linear_fc1.weight';
  run.log(...VALUES.map((mean, step) => ({ step, name, mean, std: 1 })));
  return run;
}

/** Colours of the cells of the first row of a view's picture. */
async function drawn(options: ViewOptions, place = 0): Promise<{ colors: string[]; caption: string }> {
  const still = (await readView(runOf(), options))[place];
  const { width, data } = readPicture(still?.recipe?.datasets['pictures']?.[0]?.['url']);
  const colors = Array.from({ length: width }, (_, x) =>
    [...data.subarray(4 * x, 4 * x + 3)].map(each => each.toString(16).padStart(2, '0')).join('')
  );
  return { colors, caption: still?.caption.join(' ') ?? '' };
}

it.each<'heatmap' | 'trend'>(['heatmap', 'trend'])(
  'locks the colours of a %s: the same value has the same colour at every step, what lies outside that of the nearer end',
  async view => {
    const locked: ViewOptions =
      view === 'heatmap'
        ? { view, flag: 'MLP1_mat_mul', step: 1, color_range: [-1, 1] }
        : { view, flag: 'MLP1_mat_mul', kind: 'heatmap', statistic: 'max', color_range: [-1, 1] };
    const scale = new ColorScale([-1, 1]);
    const wanted = view === 'heatmap' ? VALUES : [8, 0.8];
    const { colors, caption } = await drawn(locked);
    expect(colors.map(color => `#${color}`)).toEqual(
      wanted.map(value => scale.colorAt(scale.position(value)))
    );
    const outside = wanted.filter(value => Math.abs(value) > 1).length;
    expect(caption).toContain(
      `Colours are locked from −1 to 1; cells outside, drawn as the nearer end: ${outside}.`
    );
  }
);

it.each<[string, ViewOptions, number, readonly number[]]>([
  ['map of statistics', { view: 'statistics', kind: 'layer_map', statistic: 'mean' }, 0, VALUES],
  ['history’s map', { view: 'history', flag: 'MLP1_mat_mul', statistic: 'max' }, 0, [8, 0.8]],
  ['history’s tensor', { view: 'history', flag: 'MLP1_mat_mul', step: 1 }, 1, VALUES]
])('locks the colours of a %s', async (name, options, place, wanted) => {
  const range = { [name === 'history’s map' ? 'map_range' : 'color_range']: [-1, 1] };
  const { colors, caption } = await drawn({ ...options, ...range } as ViewOptions, place);
  const scale = new ColorScale([-1, 1]);
  expect(colors.map(color => `#${color}`)).toEqual(wanted.map(value => scale.colorAt(scale.position(value))));
  const outside = wanted.filter(value => Math.abs(value) > 1).length;
  expect(caption).toContain(`cells outside, drawn as the nearer end: ${outside}.`);
});

it.each<[string, ViewOptions]>([
  ['a map of statistics', { view: 'statistics', kind: 'layer_map', statistic: 'mean', color_range: [-1, 1] }],
  ['a history', { view: 'history', flag: 'MLP1_mat_mul', statistic: 'min', map_range: [-1, 1] }]
])('gives %s a dark middle on dark pages', async (_, options) => {
  const [still] = await readView(runOf(), options);
  const middleOf = (recipe: Pick<IRecipe, 'datasets'> | null | undefined): number => {
    const rows = recipe?.datasets['legend'] ?? [];
    return Math.max(...channels(String(rows[Math.floor(rows.length / 2)]?.['color'])));
  };
  expect(middleOf(still?.inDark?.())).toBeLessThan(0x40);
  expect(middleOf(still?.recipe)).toBeGreaterThan(0xe0);
});

it('locks colours to what all but a few values span where one dwarfs the rest, and says what lies outside', async () => {
  const values = Float64Array.from({ length: 200 }, (_, at) => (at === 7 ? 1e6 : at / 200));
  const chosen: unknown[] = [];
  const [control] = colorRangeControl(
    null,
    [0, 1e6],
    options => void chosen.push(options),
    () => [values],
    text => text
  );
  if (control?.kind !== 'select') {
    throw new Error('no select');
  }
  expect(control.options.map(({ value }) => value)).toEqual(['data', 'locked', 'robust']);
  control.change('robust');
  const [{ color_range: range }] = chosen as [{ color_range: [number, number] }];
  expect(range[0]).toBeCloseTo(0.01);
  expect(range[1]).toBeCloseTo(0.99);
  expect(lockedWords(range, [values], (text, ...more) => `${text} ${more.join(' ')}`)[0]).toMatch(/ 4$/);
});

it('follows the data where colours are not locked', async () => {
  const { colors, caption } = await drawn({ view: 'heatmap', flag: 'MLP1_mat_mul', step: 1 });
  const scale = new ColorScale([-3, 8]);
  expect(colors.map(color => `#${color}`)).toEqual(VALUES.map(value => scale.colorAt(scale.position(value))));
  expect(caption).not.toContain('locked');
});

it('has a dark middle on dark pages, and brighter colours the farther from it', () => {
  const brightness = (color: string): number => Math.max(...channels(color));
  const [dark, light] = [true, false].map(each => new ColorScale([-1, 1], 'linear', NaN, { dark: each }));
  const at = [0.5, 0.6, 0.7, 0.8, 0.9, 1];
  const shades = at.map(place => brightness(dark?.colorAt(place) ?? ''));
  expect(shades[0]).toBeLessThan(0x40);
  expect(shades).toEqual([...shades].sort((a, b) => a - b));
  expect(brightness(light?.colorAt(0.5) ?? '')).toBeGreaterThan(0xe0);
});
