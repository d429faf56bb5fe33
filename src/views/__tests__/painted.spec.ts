/** @jest-environment ./jest.environment.node.js */

import { ColorScale } from '../../charts/color-scale';
import { readPicture } from '../../charts/__tests__/read-png';
import type { ViewOptions } from '../../protocol/views.generated';
import { readView } from '../still';
import { MemoryRun } from '../../store/__tests__/memory-run';

const [POSITIONS, TILES] = [5, 3];

/** Values of a layer by position and tile, no two alike. */
const values = (layer: number): Float32Array =>
  Float32Array.from({ length: POSITIONS * TILES }, (_, at) => layer * Math.sin(7 * at + layer));

/** The painted pictures of a view: for each a function that gives the colour of a cell, '' where there is none. */
async function painted(run: MemoryRun, options: ViewOptions): Promise<((x: number, y: number) => string)[]> {
  const [still] = await readView(run, options);
  return [...(still?.recipe?.datasets['pictures'] ?? [])].map(({ url }) => {
    const { width, data } = readPicture(url);
    return (x, y) => {
      const [red = 0, green = 0, blue = 0, alpha] = data.subarray(
        4 * (y * width + x),
        4 * (y * width + x) + 4
      );
      return alpha === 0 ? '' : `#${((red << 16) | (green << 8) | blue).toString(16).padStart(6, '0')}`;
    };
  });
}

/** The colour that a scale gives a value. */
const colored = (scale: ColorScale, value: number): string => scale.colorAt(scale.entry(value) / 255);

const extentOf = (all: readonly number[]): [number, number] => [Math.min(...all), Math.max(...all)];

it('paints of a tensor positions across and tiles down, each cell in the colour of its value', async () => {
  const run = new MemoryRun();
  run.add(...[1, 2].map(layer => ({ layer, shape: [1, POSITIONS, TILES], values: values(layer) })));
  for (const transform of ['linear', 'log'] as const) {
    const view: ViewOptions = {
      view: 'heatmap',
      flag: 'MLP1_mat_mul',
      layers: 'all',
      scale: 'own',
      transform
    };
    const pictures = await painted(run, view);
    expect(pictures).toHaveLength(2);
    pictures.forEach((cell, at) => {
      const own = values(at + 1);
      const low = Math.min(...Array.from(own, Math.abs));
      const scale = new ColorScale(extentOf([...own]), transform, low);
      for (let position = 0; position < POSITIONS; position += 1) {
        for (let tile = 0; tile < TILES; tile += 1) {
          expect(cell(position, tile)).toBe(colored(scale, own[position * TILES + tile] ?? NaN));
        }
      }
    });
  }
});

it.each([
  [0, 0],
  [1, 1],
  [9, 1]
])('paints of attention queries down and keys across: head %i', async (head, drawn) => {
  const run = new MemoryRun();
  const attention = Float32Array.from({ length: 2 * 4 * 4 }, (_, at) => Math.cos(at) ** 2);
  run.add({
    flag: 'RawAttentionScore_mat_mul',
    shape: [1, 2, 4, 4],
    values: attention,
    compressor: 'NoOp()'
  });
  const [cell] = await painted(run, { view: 'heatmap', flag: 'RawAttentionScore_mat_mul', head });
  const own = attention.subarray(drawn * 16, drawn * 16 + 16);
  const scale = new ColorScale(extentOf([...own]));
  for (let query = 0; query < 4; query += 1) {
    for (let key = 0; key < 4; key += 1) {
      expect(cell?.(key, query)).toBe(colored(scale, own[query * 4 + key] ?? NaN));
    }
  }
});

it('paints of layers and steps a cell for each row, and nothing for layers that are left out', async () => {
  const run = new MemoryRun();
  const value = (layer: number, step: number): number => layer + step / 8;
  for (const layer of [1, 2, 3, 4]) {
    for (const step of [1, 2, 4]) {
      run.add({ layer, step, values: new Float32Array(6).fill(value(layer, step)) });
    }
  }
  const [cell] = await painted(run, {
    view: 'trend',
    flag: 'MLP1_mat_mul',
    kind: 'heatmap',
    layers: '1,4',
    statistic: 'mean'
  });
  const scale = new ColorScale([value(1, 1), value(4, 4)]);
  for (const step of [1, 2, 3, 4]) {
    expect([2, 3].map(layer => cell?.(step - 1, layer - 1))).toEqual(['', '']);
    for (const layer of [1, 4]) {
      expect(cell?.(step - 1, layer - 1)).toBe(step === 3 ? '' : colored(scale, value(layer, step)));
    }
  }
});
