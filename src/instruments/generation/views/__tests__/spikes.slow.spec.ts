/** @jest-environment ./jest.environment.node.js */
import { readPicture } from '../../../../charts/__tests__/read-png';
import { ColorScale } from '../../../../charts/color-scale';
import type { ViewOptions } from '../../../../protocol/views.generated';
import { WrittenRun } from '../../../../store/__tests__/written-run';
import { readView } from '../../../../views/still';
import { projectedRun } from './projected-run';
import { attentionRow, placesOf } from '../../store/__tests__/written-text';

const WIDTHS = [300, 3000];

/** A text of so many tokens, all of its prompt, which was read in one step. */
function textOf(tokens: number): WrittenRun {
  const run = new WrittenRun();
  run.generated(3, { prompts: ['The'], attention: true, lens: 1 });
  const places = placesOf(tokens, 0).map(({ position, step, offset }) => ({
    ...{ generation: 3, position, step: 1, piece: ` w${position}`, tensor_step: step, tensor_offset: offset }
  }));
  run.write('tokens', ...places);
  return run;
}

/** Whether a pixel of a view's pictures has the colour of the greatest value. */
async function hasGreatest(run: WrittenRun, options: ViewOptions, width: number): Promise<boolean> {
  const color = parseInt(new ColorScale([0, 1]).colorAt(1).slice(1), 16);
  for (const { recipe } of await readView(run, options, { width })) {
    for (const { url } of recipe?.datasets['pictures'] ?? []) {
      const { data } = readPicture(url);
      for (let at = 0; at < data.length; at += 4) {
        const [red = 0, green = 0, blue = 0] = data.subarray(at, at + 3);
        if (((red << 16) | (green << 8) | blue) === color) {
          return true;
        }
      }
    }
  }
  return false;
}

it.each([10, 400])('the one key of %i that a query looks at is in the pixels of Attention', async tokens => {
  const run = textOf(tokens);
  const row = { step: 1, queries: tokens, keys: tokens, layer: 0, heads: 1, padding: [0] };
  const [query, key] = [Math.floor(tokens * 0.8), Math.floor(tokens * 0.37)];
  run.add(attentionRow(row, (_, _head, at, other) => (at === query && other === key ? 1 : 0.01)));
  for (const width of WIDTHS) {
    expect([width, await hasGreatest(run, { view: 'attention', layers: '0' }, width)]).toEqual([width, true]);
  }
});

it.each([10, 5000])(
  'the one position of %i that a layer is sure of is in the pixels of the lens',
  async tokens => {
    const run = textOf(tokens);
    run.write(
      'lens',
      ...Array.from({ length: tokens }, (_, position) => ({
        generation: 3,
        position,
        layer: 0,
        ids: [1],
        texts: [' w'],
        probabilities: [position === Math.floor(tokens * 0.617) ? 1 : 0.1],
        token: 1,
        token_rank: 0,
        token_probability: 0.1,
        entropy: 1
      }))
    );
    for (const width of WIDTHS) {
      expect([width, await hasGreatest(run, { view: 'lens' }, width)]).toEqual([width, true]);
    }
  }
);

it.each([10, 5000])('the one vector of %i that lies far from all others is drawn apart', async tokens => {
  const far = Math.floor(tokens * 0.617);
  const run = projectedRun({
    prompts: [Array.from({ length: tokens + 1 }, (_, at) => `w${at % 5}`).join(' ')],
    change: (vector, _, position) => void (position === far && vector.fill(50))
  });
  for (const width of WIDTHS) {
    const [still] = await readView(run, { view: 'projection', flag: 'HiddenStates', layer: 0 }, { width });
    const { x0, x1 } = still?.recipe?.params as Record<'x0' | 'x1', number>;
    const pixel = (x1 - x0) / (still?.recipe?.width ?? 0);
    const places = (still?.recipe?.datasets['points'] ?? []).map(({ x }) => Number(x)).sort((a, b) => a - b);
    expect(places).toHaveLength(tokens);
    const gaps = [places[1]! - places[0]!, places.at(-1)! - places.at(-2)!];
    expect(Math.max(...gaps) / pixel).toBeGreaterThan(20);
  }
});
