/** @jest-environment ./jest.environment.node.js */
import { SeededRandom } from '../../protocol/seeded-random';
import { ColorScale } from '../color-scale';
import { aggregated, paint, type IMatrix } from '../pixels';
import { Pictures, sized } from '../pictures';
import { readPicture } from './read-png';

const WIDTHS = [300, 1450];
// Less, about as much, and far more than there is room for; whole pixels a step and parts of them.
const CASES = [
  [10, 300],
  [1000, 777],
  [2048, 3000],
  [2048, 1450],
  [20_000, 300]
] as const;

/** Rows that differ a thousandfold, with one spike somewhere, which is smaller than other rows' usual values. */
function spiked(steps: number, spike: readonly [number, number], value: number): IMatrix {
  const values = Float64Array.from(
    { length: 4 * steps },
    (_, at) => 10 ** Math.floor(at / steps) * (1 + (at % 7) / 100)
  );
  values[spike[0] * steps + spike[1]] = value;
  return { rows: 4, columns: steps, values };
}

/** The columns in which pixels of a picture, down some rows, have the colour of a value. */
function columnsOf(matrix: IMatrix, scale: ColorScale, value: number): Set<number> {
  const { width, data } = paint(matrix, scale);
  const color = scale.colorAt(scale.entry(value) / 255);
  const found = new Set<number>();
  for (let at = 0; at < data.length; at += 4) {
    const [red = 0, green = 0, blue = 0] = data.subarray(at, at + 3);
    if (`#${((red << 16) | (green << 8) | blue).toString(16).padStart(6, '0')}` === color) {
      found.add((at / 4) % width);
    }
  }
  return found;
}

it.each(CASES)('one spike of %i steps is in the pixels of a picture %i wide', (steps, width) => {
  const random = new SeededRandom(steps + width);
  for (const [row, value] of [
    [0, 30],
    [2, 2],
    [3, 5e4]
  ] as const) {
    const step = random.below(steps);
    const matrix = spiked(steps, [row, step], value);
    const drawn = aggregated(matrix, width, 300);
    expect([drawn.rows, drawn.columns]).toEqual([4, Math.min(steps, width)]);
    const scale = new ColorScale([1, 5e4], 'log', 1);
    const column = Math.floor((step * drawn.columns) / steps);
    expect(columnsOf(drawn, scale, value)).toEqual(new Set([column]));
  }
});

it('of the values of a pixel it shows what is not finite first, and nothing only where there is none', () => {
  const values = [1, NaN, 9, 1, 1, 0, 1, 1];
  const missing = Uint8Array.of(0, 0, 0, 0, 0, 0, 1, 1);
  const drawn = aggregated({ rows: 1, columns: 8, values, missing }, 4, 1);
  expect([...(drawn.values as Float64Array)]).toEqual([NaN, 9, 0, NaN]);
  expect([...(drawn.missing ?? [])]).toEqual([0, 0, 0, 1]);
});

it('brings rows to the pixels down as columns to those across, and leaves alone what has room', () => {
  const matrix = spiked(100, [1, 50], 7);
  expect(aggregated(matrix, 100, 4)).toBe(matrix);
  const drawn = aggregated(matrix, 50.9, 1.2);
  expect([drawn.rows, drawn.columns]).toEqual([1, 50]);
});

it('the greatest value is drawn where another is farther from the middle of its row', () => {
  const values = [5, 5, 8, 0, 5, 5];
  expect([...(aggregated({ rows: 1, columns: 6, values }, 3, 1).values as Float64Array)]).toEqual([5, 8, 5]);
});

it.each(WIDTHS)('a still picture %i wide is aggregated to the pixels of its plot', width => {
  const matrix = spiked(5000, [3, 4321], 5e4);
  const scale = new ColorScale([0, 5e4]);
  const picture = new Pictures().draw(0, matrix, scale);
  const row = { ...picture, x: -0.5, x2: 4999.5, y: -0.5, y2: 3.5 };
  const recipe = sized(
    {
      template: 'moment-map',
      texts: {},
      params: { x0: -0.5, x1: 4999.5, y0: -0.5, y1: 3.5 },
      datasets: { pictures: [row] },
      height: 200
    },
    width
  );
  const [drawn] = recipe.datasets['pictures'] ?? [];
  const png = readPicture(drawn?.['url']);
  expect(png.width).toBe(recipe.width);
  const greatest = scale.colorAt(1);
  const colors = new Set<string>();
  for (let at = 0; at < png.data.length; at += 4) {
    const [red = 0, green = 0, blue = 0] = png.data.subarray(at, at + 3);
    colors.add(`#${((red << 16) | (green << 8) | blue).toString(16).padStart(6, '0')}`);
  }
  expect(colors).toContain(greatest);
});
