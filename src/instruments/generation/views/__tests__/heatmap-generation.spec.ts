import { readPicture } from '../../../../charts/__tests__/read-png';
import type { HeatmapOptions } from '../../../../protocol/views.generated';
import { attentionRow, placesOf } from '../../store/__tests__/written-text';
import { LinkedRun } from '../../../../store/__tests__/written-run';
import type { ITensorRow } from '../../../../store/tensor-data';
import { readView } from '../../../../views/still';
import type { IView } from '../../../../views/view';
import { caption, press, put, said, settled, showView, state, title } from '../../../../views/__tests__/page';

const PIECES = ['The', ' cat', ' sat', ' on', ' it'];

let run: LinkedRun;
let view: IView;

beforeEach(() => {
  run = new LinkedRun();
});

/** Positions of two sequences, the second padded by 2: value = 100 × layer + 50 × sequence + 10 × position + tile. */
function tiles(step: number, places: readonly number[], layer = 1): Partial<ITensorRow> {
  const values = [0, 1].flatMap(sequence =>
    places.flatMap(place =>
      [0, 1].map(tile => 100 * layer + 50 * sequence + 10 * (place - 2 * sequence) + tile)
    )
  );
  const [shape, sourceShape] = [2, 512].map(last => [2, places.length, last]) as [number[], number[]];
  return { step, layer, phase: 'generate', shape, sourceShape, values: Float32Array.from(values) };
}

/** Generation 3: prompts of three tokens and of one, and two tokens more, of which the last was not read. */
function write(...steps: readonly Partial<ITensorRow>[]): void {
  run.generated(3, { prompts: ['The cat sat', 'The'] });
  for (const [sequence, prompt] of [3, 1].entries()) {
    run.write(
      'tokens',
      ...placesOf(prompt, 1, { padding: 3 - prompt }).map(({ position, step, offset }) => ({
        generation: 3,
        sequence,
        position,
        step: 1,
        piece: PIECES[position],
        tensor_step: step,
        tensor_offset: offset
      }))
    );
  }
  run.add(...steps);
}

async function show(options: Partial<HeatmapOptions> = {}): Promise<IView> {
  const full = { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all', generation: 0, ...options } as const;
  view = await showView(run, full);
  return view;
}

it('draws the whole text, token by tile, and says so', async () => {
  write(tiles(1, [0, 1, 2]), tiles(2, [3]));
  await show();
  expect(title()).toBe('MLP1 output, mean of 2 tiles, layer 1, generation 3');
  expect(caption()).toContain('Sequence 1 of 2, put together from all its passes.');
  expect(caption()).toContain('The last token was not read by the model.');
  expect(caption()).not.toContain('not finite');
  expect(view.summary()).toBe(
    'In generation 3 values run from 100 to 131. The largest magnitude, 131, is in layer 1 at position 3 “␣on”, tile 1.'
  );
  const plot = document.querySelector('.jp-MegalensPlot')?.textContent ?? '';
  expect(['The', '␣cat', '␣sat', '␣on', '␣it'].every(token => plot.includes(token))).toBe(true);
  await press('ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowDown');
  expect(said()).toBe('layer 1, position 2 “␣sat”, tile 1: 121');
});

it('leaves positions without rows blank, and counts them', async () => {
  write(tiles(1, [0, 1, 2]), tiles(2, [3], 2));
  const [still] = await readView(run, {
    view: 'heatmap',
    flag: 'MLP1_mat_mul',
    layers: 'all',
    generation: 3
  });
  expect(still?.caption).toContain('Positions of which nothing came, left blank: 4.');
  const [one, two] = [...(still?.recipe?.datasets['pictures'] ?? [])].map(({ url }) => {
    const { data, width } = readPicture(String(url));
    return Array.from({ length: width }, (_, column) => ((data[4 * column + 3] ?? 0) > 0 ? 1 : 0));
  });
  expect(one).toEqual([1, 1, 1, 0, 0]);
  expect(two).toEqual([0, 0, 0, 1, 0]);
});

it('takes the sequence of the batch for the sample, without its padding', async () => {
  write(tiles(1, [0, 1, 2]), tiles(2, [3]));
  await show({ sample: 1 });
  expect(caption()).toContain('Sequence 2 of 2');
  expect(view.summary()).toContain('In generation 3 values run from 150 to 161.');
  await press('ArrowRight', 'End');
  expect(said()).toBe('layer 1, position 2 “␣sat”, tile 0: nothing');
});

it('is chosen instead of a step, and left again', async () => {
  run.add({ step: 7, layer: 1 });
  write(tiles(1, [0, 1, 2]), tiles(2, [3]));
  await show({ generation: null });
  expect(title()).toContain('step 7');
  await put('generation', '3');
  expect(view.options).toMatchObject({ generation: 3 });
  expect(title()).toContain('generation 3');
  expect(document.querySelector('[data-control="steps"]')).toBeNull();
  await put('generation', '');
  expect(title()).toContain('step 7');
  expect(document.querySelector('[data-control="steps"]')).not.toBeNull();
});

it('follows the position that is pinned, and pins one', async () => {
  write(tiles(1, [0, 1, 2]), tiles(2, [3]));
  await show();
  const marked = (): number => document.querySelectorAll('.jp-MegalensPinned').length;
  expect(marked()).toBe(0);
  run.link.pinPosition({ generation: 3, sequence: 0, position: 2 });
  await settled();
  expect(marked()).toBe(1);
  run.link.pinPosition({ generation: 3, sequence: 1, position: 2 });
  await settled();
  expect(marked()).toBe(0);
  await press('ArrowRight', 'ArrowRight', 'p');
  expect(run.link.position).toEqual({ generation: 3, sequence: 0, position: 1 });
});

it('grows with the text, and reads only what is new', async () => {
  write(tiles(1, [0, 1, 2]));
  await show({ layers: '1' });
  expect(view.summary()).toContain('from 100 to 121');
  run.asked.length = 0;
  run.add(tiles(2, [3]));
  await settled();
  expect(run.asked.map(({ steps }) => steps)).toEqual([[2, 2]]);
  expect(view.summary()).toContain('from 100 to 131');
});

it('puts attention together too, a head at a time', async () => {
  write();
  const row = { layer: 0, heads: 2, padding: [0, 2] };
  const value = (_: number, head: number, query: number, key: number): number =>
    head + 0.1 * query + 0.01 * key;
  run.add(
    attentionRow({ ...row, step: 1, queries: 3, keys: 3 }, value),
    attentionRow({ ...row, step: 2, queries: 1, keys: 4 }, value)
  );
  await show({ flag: 'RawAttentionScore_mat_mul', head: 1 });
  expect(title()).toBe('Attention probabilities, no compression, head 1, layer 0, generation 3');
  expect(view.summary()).toContain('values run from 1 to 1.33.');
  await put('head', '0');
  expect(view.summary()).toContain('values run from 0 to 0.33.');
});

it('puts attention whose keys were mixed together by query', async () => {
  write();
  const compressor = "Tile(tiles=2, reduction='mean')";
  const row = (step: number, queries: number, first: number): Partial<ITensorRow> => ({
    step,
    layer: 0,
    phase: 'generate',
    flag: 'RawAttentionScore_mat_mul',
    compressor,
    shape: [1, 1, queries, 2],
    sourceShape: [1, 1, queries, 4],
    values: Float32Array.from({ length: queries * 2 }, (_, at) => first + at)
  });
  run.add(row(1, 3, 0), row(2, 1, 6));
  await show({ flag: 'RawAttentionScore_mat_mul' });
  await press('ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowDown', 'ArrowDown');
  expect(said()).toBe('layer 0, tile 1, query 3: 7');
  await press('ArrowDown');
  expect(said()).toBe('layer 0, tile 1, query 4: nothing');
});

it('says where nothing was generated, or nothing of this was traced', async () => {
  run.add({ step: 7, layer: 1 });
  await show();
  expect(state()).toBe('Nothing was generated yet.');
  write();
  await settled();
  expect(state()).toBe('MLP1 output was not traced in generation 3.');
  await view.update({ generation: 9 } as object);
  expect(state()).toBe('There is no generation 9.');
  document.querySelector<HTMLButtonElement>('.jp-MegalensState button')?.click();
  await settled();
  expect(title()).toContain('step 7');
});
