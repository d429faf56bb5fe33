import { readPicture } from '../../../../charts/__tests__/read-png';
import type { AttentionOptions, ViewOptions } from '../../../../protocol/views.generated';
import { HELLO } from '../../../../store/__tests__/memory-run';
import { attentionRow, placesOf, type IAttentionPass } from '../../store/__tests__/written-text';
import { LinkedRun } from '../../../../store/__tests__/written-run';
import { peaksWithin } from '../../store/attention-rows';
import type { ITensorRow } from '../../../../store/tensor-data';
import { AttentionReader } from '../attention/attention-reader';
import { headMaps, type IHeadMaps, type IMapWindow } from '../attention/attention-maps';
import type { IAttentionText } from '../attention/attention-text';
import { readView } from '../../../../views/still';
import type { IView } from '../../../../views/view';
import { loadModel } from '../../../../views/__tests__/model';
import { checkRecipes } from '../../../../views/__tests__/recipe-checks';
import {
  caption,
  press,
  put,
  said,
  settled,
  showView,
  state,
  tableRows,
  text,
  title,
  update
} from '../../../../views/__tests__/page';

const PIECES = ['The', ' cat', ' sat', ' on', ' it'];

/** Head 0 has three quarters on the first token (half in layer 1) and the rest on the query itself, head 1 looks at all keys alike. */
const share = (layer: number, head: number, query: number, key: number): number => {
  const first = layer === 0 ? 0.75 : 0.5;
  return head === 1 ? 1 / (query + 1) : query === 0 ? 1 : key === 0 ? first : key === query ? 1 - first : 0;
};

let run: LinkedRun;
let view: IView;

beforeEach(() => {
  run = new LinkedRun();
});

/** Write generation 3: a prompt of three tokens, one that was read, one that was not. */
function write(pass: Partial<IAttentionPass> = {}, value = share, left: readonly number[] = []): void {
  run.generated(3, { prompts: ['The cat sat'], attention: true });
  tell(placesOf(3, 1));
  for (const layer of [0, 1]) {
    for (const [step, queries, keys] of [
      [1, 3, 3],
      [2, 1, 4]
    ] as const) {
      if (!left.includes(step)) {
        const row = { step, queries, keys, layer, heads: 2, padding: [0], ...pass };
        run.add(attentionRow(row, (_, head, query, key) => value(layer, head, query, key)));
      }
    }
  }
}

function tell(places: ReturnType<typeof placesOf>): void {
  run.write(
    'tokens',
    ...places.map(({ position, step, offset }) => ({
      generation: 3,
      position,
      step: 1,
      piece: PIECES[position],
      tensor_step: step,
      tensor_offset: offset
    }))
  );
}

async function show(options: Partial<AttentionOptions> = {}): Promise<IView> {
  view = await showView(run, { view: 'attention', ...options });
  return view;
}

const headers = (): string[] =>
  [...document.querySelectorAll('.jp-MegalensPlot text')]
    .map(node => node.textContent ?? '')
    .filter(label => label.startsWith('layer'));

/** What a model says of a place of a map. */
async function tips(
  options: Partial<AttentionOptions> = {}
): Promise<(x: number, y: number, map?: number) => string[]> {
  const { model } = await loadModel(run, { view: 'attention', ...options } as ViewOptions);
  return (x, y, layer = 0) => {
    const frame = { left: 0, top: 0, width: 400, height: 200, facet: { layer } };
    const mark = model.probe({ frame, x, y, down: 0 });
    const tip = mark && model.tipOf(mark);
    return tip ? [tip.heading, ...tip.lines.map(({ name, value }) => `${name}: ${value}`)] : [];
  };
}

describe('maps', () => {
  it('draws one for each layer and head and says what stands out', async () => {
    write();
    await show({ layers: 'all' });
    expect(headers()).toEqual(['layer 0, head 0', 'layer 0, head 1', 'layer 1, head 0', 'layer 1, head 1']);
    expect(title()).toBe('Attention of generation 3, layers 0 and 1, heads 0 and 1');
    expect(caption()).toContain('Sequence 0 of 1, counted from 0.');
    expect(caption()).toContain('The last token was not read by the model.');
    // (1 + 3 × 0.75) / 4
    expect(view.summary()).toBe('Head 0 of layer 0 looks at the first token with 81.3 % on average.');
  });

  it('paints queries down and keys across, and leaves blank what no query can look at', async () => {
    write();
    const [still] = await readView(run, { view: 'attention', layers: '0', heads: '0' });
    const [picture] = still?.recipe?.datasets['pictures'] ?? [];
    const { data, width } = readPicture(String(picture?.['url']));
    const alpha = (query: number, key: number): number => data[4 * (query * width + key) + 3] ?? -1;
    expect(width).toBe(5);
    const there = [0, 1, 2, 3, 4].map(query => [0, 1, 2, 3, 4].map(key => (alpha(query, key) > 0 ? 1 : 0)));
    expect(there).toEqual([
      [1, 0, 0, 0, 0],
      [1, 1, 0, 0, 0],
      [1, 1, 1, 0, 0],
      [1, 1, 1, 1, 0],
      [0, 0, 0, 0, 0]
    ]);
    expect(picture).toMatchObject({ x: -0.5, x2: 4.5, y: -0.5, y2: 4.5 });
  });

  it('has the tokens on both axes of a map in full', async () => {
    write();
    const [full] = await readView(run, { view: 'attention', layers: '0', heads: '1' });
    expect(full?.recipe?.params['tokens']).toEqual({ 0: 'The', 1: '␣cat', 2: '␣sat', 3: '␣on', 4: '␣it' });
    expect(full?.recipe?.params['rowTokens']).toEqual(full?.recipe?.params['tokens']);
    expect(full?.title).toBe('Attention of generation 3, layer 0, head 1');
  });

  it('says of a cell the query, the key and the probability, and what the query looks at most', async () => {
    write();
    const tip = await tips();
    expect(tip(0, 3)).toEqual([
      'layer 0, head 0',
      'query: 3 “ on”',
      'key: 0 “The”',
      'probability: 75 %',
      'most at 0 “The”: 75 %',
      '3 “ on”: 25 %',
      '1 “ cat”: 0 %',
      '2 “ sat”: 0 %'
    ]);
    expect(tip(2, 2, 1).slice(0, 4)).toEqual([
      'layer 0, head 1',
      'query: 2 “ sat”',
      'key: 2 “ sat”',
      'probability: 33.3 %'
    ]);
    expect(tip(4, 1)[3]).toBe('probability: nothing');
  });

  checkRecipes(
    [
      ['all maps', { view: 'attention' }, 1],
      ['one map', { view: 'attention', layers: '0', heads: '0' }, 1],
      ['heads', { view: 'attention', kind: 'heads', layers: 'all' }, 1]
    ],
    () => {
      run = new LinkedRun();
      write();
      return run;
    }
  );

  it('opens a head where it is clicked at, or with Enter, and goes back', async () => {
    write();
    await show();
    await press('ArrowRight', 'PageDown', 'ArrowDown');
    expect(said()).toBe('layer 0, head 1, query 1 “ cat”, key 0 “The”: 50 %');
    // The row of the query is outlined with the cell.
    expect(document.querySelectorAll('.jp-MegalensOverlay .jp-MegalensLinked')).toHaveLength(1);
    await press('Enter');
    expect(view.options).toMatchObject({ layers: '0', heads: '1' });
    expect(headers()).toEqual([]);
    document.querySelector<HTMLButtonElement>('button[data-control="head"]')?.click();
    await settled();
    expect(view.options).toMatchObject({ layers: '0', heads: 'all' });
    expect(headers()).toHaveLength(2);
  });

  it('follows the position that is pinned, marks its row and ranks its keys', async () => {
    write();
    await show({ heads: '0' });
    // The newest that was read.
    expect(text('.jp-MegalensTable thead')).toContain('Key of query 3 “ on”');
    run.link.pinPosition({ generation: 3, sequence: 0, position: 2 });
    await settled();
    expect(text('.jp-MegalensTable thead')).toContain('Key of query 2 “ sat”');
    expect(tableRows()).toEqual([
      ['0 “The”', '75 %'],
      ['2 “ sat”', '25 %'],
      ['1 “ cat”', '0 %']
    ]);
    expect(document.querySelectorAll('.jp-MegalensPinned')).toHaveLength(1);
    await press('ArrowRight', 'ArrowDown', 'p');
    expect(run.link.position).toMatchObject({ generation: 3, position: 1 });
    expect(text('.jp-MegalensTable thead')).toContain('Key of query 1 “ cat”');
    await update({ position: 3 });
    run.link.pinPosition(null);
    await settled();
    expect(text('.jp-MegalensTable thead')).toContain('Key of query 3 “ on”');
  });

  it('hatches what is not finite, and counts what did not come', async () => {
    write(
      {},
      (layer, head, query, key) =>
        query === 2 && key === 1 && head === 0 ? NaN : share(layer, head, query, key),
      [2]
    );
    await show();
    expect(view.summary()).toMatch(/^Cells that are not finite: 1, first in head 0 of layer 0\./);
    expect(caption()).toContain('Cells that are not finite (hatched): 1.');
    expect(caption()).toContain('Positions of which nothing came, left blank: 1.');
    expect((await tips())(1, 2).slice(3, 5)).toEqual(['probability: NaN', 'most at 1 “ cat”: NaN']);
    expect((await tips())(1, 3)[3]).toBe('probability: nothing');
  });

  it('says what a cell stands for where blocks were kept', async () => {
    write({ cells: 2 });
    await show({ heads: '0' });
    expect(caption()).toContain(
      'Each cell is the largest of 2 × 2 probabilities; zoom in for smaller cells.'
    );
    expect(view.summary()).toContain('with up to');
    const tip = await tips({ heads: '0' });
    // Queries 2 and 3, of which the prompt's is in a block of its own.
    expect(tip(0, 3)).toEqual([
      'layer 0, head 0',
      'query: 2–3',
      'key: 0–1',
      'largest: 75 %',
      'most at 0–1: 75 %',
      '2–3: 25 %'
    ]);
  });

  it('draws smaller cells of a part that is looked at, in the colours of the whole', async () => {
    // The prompt in blocks of 2 × 2, the pass after it over 4 keys in blocks of 2.
    write({ cells: 2 });
    const reader = new AttentionReader(run);
    const question = { generation: null, layers: '0', sequence: 0, step: null, near: null };
    const { text: found } = await reader.read(question, new AbortController().signal);
    const maps = (window: IMapWindow | null, before: IHeadMaps | null): IHeadMaps =>
      headMaps(found as IAttentionText, [0], [1], window, before);
    const all = maps(null, null);
    expect(all.maps[0]?.map).toMatchObject({ queries: { side: 2 }, keys: { side: 2 } });
    const part = maps({ queries: [3, 3], keys: [0, 3] }, all);
    expect(part.maps[0]?.map).toMatchObject({ queries: { first: 3, side: 1, count: 1 }, keys: { side: 2 } });
    expect([...(part.maps[0]?.cells.values ?? [])]).toEqual([0.25, 0.25]);
    expect(part.whole).toBe(all.whole);
    // Looked at first, the part has the same colours.
    expect(
      Math.max(...(maps({ queries: [3, 3], keys: [0, 3] }, null).whole[0]?.filter(Number.isFinite) ?? []))
    ).toBe(1);
  });

  it('locks the colours, and spreads them', async () => {
    write();
    await show({ heads: '1' });
    await put('color_range', 'locked');
    expect(view.options).toMatchObject({ color_range: [0, 1] });
    await put('transform', 'log');
    expect(caption()).toContain('Colours are logarithmic over 3 decades.');
    expect(caption()).toContain('cells outside, drawn as the nearer end: 0.');
  });
});

describe('heads', () => {
  it('says of each head its entropy, its distance and its share on the first token', async () => {
    write();
    const tip = await tips({ kind: 'heads', layers: 'all' });
    // 3 × (0.75 ln(1/0.75) + 0.25 ln 4) / 4; 0.75 × (1 + 2 + 3) / 4; (1 + 3 × 0.75) / 4
    expect(tip(0, 0)).toEqual([
      'layer 0, head 0',
      'mean entropy, nats: 0.422',
      'mean distance, tokens: 1.13',
      'share on the first token: 81.3 %'
    ]);
    // (ln 2 + ln 3 + ln 4) / 4; (1/2 + 1 + 3/2) / 4; (1 + 1/2 + 1/3 + 1/4) / 4
    expect(tip(1, 1)).toEqual([
      'layer 1, head 1',
      'mean entropy, nats: 0.795',
      'mean distance, tokens: 0.75',
      'share on the first token: 52.1 %'
    ]);
  });

  it('colours layer × head by what is chosen, and opens the head that is clicked at', async () => {
    write();
    await show({ kind: 'heads', layers: 'all' });
    expect(title()).toContain('heads 0 and 1: mean entropy, nats');
    expect(caption()).toContain('Means over 4 queries.');
    expect(view.summary()).toBe('Head 0 of layer 0 is the most focused: its mean entropy is 0.422 nats.');
    await put('measure', 'distance');
    expect(view.summary()).toBe('Head 0 of layer 0 looks farthest: 1.13 tokens back on average.');
    await press('ArrowRight', 'ArrowDown');
    expect(said()).toBe('layer 1, head 0: 0.75');
    await press('Enter');
    expect(view.options).toMatchObject({ kind: 'maps', layers: '1', heads: '0' });
    document.querySelector<HTMLButtonElement>('button[data-control="head"]')?.click();
    await settled();
    expect(view.options).toMatchObject({ kind: 'heads', layers: 'all', heads: 'all' });
  });

  it('says how a measure is a bound where only maxima were kept', async () => {
    // One query over 4 keys, in 2 blocks of 2 with 0.5 and 0.2 as their largest: at least two keys share it, 0.4 at most lie next to the query.
    run.generated(3, { prompts: ['The'], attention: true });
    tell([{ position: 3, step: 2, pass: 0, offset: 0 }]);
    const row = { step: 2, queries: 1, keys: 4, heads: 1, padding: [0], cells: 2 };
    run.add(attentionRow(row, (_, __, ___, key) => [0.5, 0.2, 0.1, 0.2][key] ?? 0));
    const tip = await tips({ kind: 'heads' });
    expect(tip(0, 0)).toEqual([
      'layer 0, head 0',
      'mean entropy, nats: at least 0.693',
      'mean distance, tokens: at least 1.2',
      'share on the first token: at most 50 %'
    ]);
    await show({ kind: 'heads', measure: 'first' });
    expect(caption()).toContain('at most as large as drawn');
    expect(view.summary()).toBe('Head 0 of layer 0 looks at the first token with up to 50 % on average.');
  });

  it('leaves queries out that are not finite, and says how many', async () => {
    write({}, (layer, head, query, key) =>
      query === 1 && head === 0 ? NaN : share(layer, head, query, key)
    );
    await show({ kind: 'heads' });
    expect(view.summary()).toMatch(/^Rows of queries that are not finite, left out of the means: 1\. Head/);
    // 2 × 0.5623 / 3
    expect((await tips({ kind: 'heads' }))(0, 0)[1]).toBe('mean entropy, nats: 0.375');
  });
});

describe('while a text is written', () => {
  it('reads only what is new', async () => {
    run.generated(3, { prompts: ['The cat sat'], attention: true }, { state: 'running' });
    const row = { layer: 0, heads: 2, padding: [0] };
    const value = (_: number, head: number, query: number, key: number): number => share(0, head, query, key);
    run.add(attentionRow({ ...row, step: 1, queries: 3, keys: 3 }, value));
    tell(placesOf(3, 0));
    await show();
    expect(title()).toContain('generation 3');
    run.asked.length = 0;
    run.add(attentionRow({ ...row, step: 2, queries: 1, keys: 4 }, value));
    tell(placesOf(3, 1).slice(3));
    await settled();
    expect(run.asked.map(({ steps }) => steps)).toEqual([[2, 2]]);
    expect((await tips())(0, 3)[3]).toBe('probability: 75 %');
  });

  it('says that a newer text has no attention', async () => {
    write();
    run.generated(4, { prompts: ['The'] });
    await show();
    expect(title()).toContain('generation 3');
    expect(text('.jp-MegalensNote')).toContain(
      'Generation 4, which is newer, was written without attention.'
    );
  });
});

describe('without attention', () => {
  it('says how it is asked for, and asks for it', async () => {
    const asked: unknown[] = [];
    Object.assign(run, {
      generate: (request: unknown) => {
        asked.push(request);
        return Promise.resolve({ generation: 5, control: null });
      }
    });
    run.generated(4, { prompts: ['The'] });
    await show();
    expect(state()).toBe('No attention was traced in generation 4. In a cell:');
    expect(text('.jp-MegalensState pre')).toBe('lab.generate("…", attention=True)');
    document.querySelector<HTMLButtonElement>('.jp-MegalensState button')?.click();
    await settled();
    expect(asked).toEqual([{ prompts: ['The'], attention: true }]);
    expect(view.options).toMatchObject({ generation: 5 });
    expect(state()).toBe('There is no generation 5. In a cell:');
  });

  it('says why a model gives none', async () => {
    run.hello = {
      ...HELLO,
      generation: { prompts: 1, tokens: 8, no_attention: 'its kernel keeps no probabilities.' }
    };
    run.generated(4, { prompts: ['The'] });
    await show();
    expect(state()).toBe('This model gives no attention probabilities: its kernel keeps no probabilities.');
  });

  it('names the layers and heads that there are', async () => {
    write();
    await show({ layers: '7' });
    expect(state()).toBe('There is no attention of layers 7 here, but of layers 0 and 1.');
    await update({ layers: '0', heads: '5-6' });
    expect(state()).toBe('There are no heads 5-6: a layer has 2, counted from 0.');
    document.querySelector<HTMLButtonElement>('.jp-MegalensState button')?.click();
    await settled();
    expect(headers()).toHaveLength(2);
  });

  it('says that a compressor mixed keys, and has them kept apart', async () => {
    const setting = { compressor: { name: 'Tile' }, phases: ['train' as const] };
    const peaks = { name: 'Peaks', title: 'Peaks', description: '', schema: {} };
    run.hello = {
      ...HELLO,
      compressors: [...HELLO.compressors, peaks],
      config: { flags: { RawAttentionScore_mat_mul: setting } }
    };
    const row = attentionRow({ step: 1, queries: 3, keys: 3, heads: 2, padding: [0] }, () => 0.5);
    run.add({ ...row, phase: 'train', compressor: "Tile(tiles=3, reduction='mean')" });
    await show();
    expect(state()).toBe(
      'Attention was kept as mean of 3 tiles, which mixes keys: no compression keeps all of them apart, Peaks the largest of blocks.'
    );
    document.querySelector<HTMLButtonElement>('.jp-MegalensState button')?.click();
    await settled();
    expect(run.patches).toEqual([
      { flags: { RawAttentionScore_mat_mul: { ...setting, compressor: { name: 'Peaks' } } } }
    ]);
  });

  it('says of a training that traces none how it is traced', async () => {
    await show();
    expect(state()).toBe('Attention probabilities is not traced.');
  });
});

it('draws a step of a training, with its tokens, and another sample', async () => {
  const row = (step: number): Partial<ITensorRow> => ({
    ...attentionRow({ step, queries: 3, keys: 3, heads: 2, padding: [0, 0] }, (sample, head, query, key) =>
      sample === 0 ? share(0, head, query, key) : share(1, head, query, key)
    ),
    phase: 'train'
  });
  const labels = ['The', ' cat', ' sat', 'A', ' dog', ' ran'];
  run.add(row(40), row(50), {
    step: 50,
    flag: 'InputTokens',
    layer: -1,
    part: 'ids',
    shape: [2, 3],
    values: new Float32Array(6),
    labels
  });
  await show({ heads: '0' });
  expect(title()).toBe('Attention of step 50, layer 0, head 0');
  expect(caption()).toContain('Sample 0 of 2, counted from 0.');
  expect(text('.jp-MegalensTable thead')).toContain('Key of query 2 “␣sat”');
  await put('sequence', '1');
  expect(tableRows()[0]).toEqual(['0 “A”', '50 %']);
  await update({ step: 42 });
  expect(title()).toBe('Attention of step 40, layer 0, head 0');
  expect(caption()).toContain('Step 42 was not traced; this is the nearest one.');
});

it('draws a long text before its tokens have come, and then with them', async () => {
  const prompt = 4096;
  const row = { layer: 0, heads: 1, padding: [0], cells: 8 };
  run.generated(3, { prompts: ['…'], attention: true }, { padded: prompt, first_step: 1, last_step: 2 });
  // In blocks of 512; what is kept of the prompt is made by hand, since it has 16 million probabilities.
  const whole = new Float32Array(64).map((_, at) => (at % 8 <= Math.floor(at / 8) ? 0.5 : 0));
  run.add(
    {
      ...attentionRow({ ...row, step: 1, queries: 8, keys: 8 }, () => 0.5),
      sourceShape: [1, 1, prompt, prompt],
      compressor: 'Peaks(cells=8)',
      values: whole
    },
    attentionRow({ ...row, step: 2, queries: 1, keys: prompt + 1 }, () => 0.25)
  );
  run.write(
    'tokens',
    ...placesOf(prompt, 1).map(({ position, step, offset }) => ({
      generation: 3,
      position,
      step: 1,
      piece: ' a',
      tensor_step: step,
      tensor_offset: offset
    }))
  );
  const { model, loaded } = await loadModel(run, { view: 'attention' });
  const captionOf = (each: typeof loaded): string =>
    'content' in each ? each.content.caption.join(' ') : '';
  const countOf = (each: typeof loaded): number => ('content' in each ? each.content.extent.x[1] + 0.5 : 0);
  expect(captionOf(loaded)).toContain('Its tokens are still being read.');
  expect(captionOf(loaded)).toMatch(/Each cell is the largest of 512 × 1.024 probabilities/);
  expect(countOf(loaded)).toBe(prompt + 1);
  const later = await model.load(new AbortController().signal);
  expect(captionOf(later)).toContain('The last token was not read by the model.');
  expect(countOf(later)).toBe(prompt + 2);
  // The attention itself was asked for once.
  expect(run.asked).toHaveLength(1);
});

describe('attention of many heads', () => {
  const [heads, prompt] = [64, 128];
  const peaks: (number | undefined)[] = [];

  /** Let a recording answer as coarse as it is asked; with a failure nothing finer. */
  function record(failure: Error | null = null): void {
    peaks.length = 0;
    run.hello = { ...HELLO, model: { name: 'GPT', layers: 1, heads } };
    run.generated(3, { prompts: ['…'], tokens: 2, attention: true }, { padded: prompt });
    tell(placesOf(prompt, 1));
    const keep = (cells: number): void => {
      const of = cells < prompt ? ' of Peaks(cells=256)' : '';
      const blocks = Math.min(cells, prompt);
      const values = new Float32Array(heads * blocks ** 2).fill(0.5);
      const shapes = { shape: [1, heads, blocks, blocks], sourceShape: [1, heads, prompt, prompt], values };
      const row = attentionRow({ step: 1, queries: 1, keys: 1, heads, padding: [0] }, () => 1);
      run.rows = [];
      run.add({ ...row, ...shapes, compressor: `Peaks(cells=${cells})${of}` });
    };
    keep(256);
    const answer = run.tensors.bind(run);
    jest.spyOn(run, 'tensors').mockImplementation(async query => {
      const { peaks: cells = 256 } = query;
      peaks.push(query.peaks);
      if (failure && cells > 64) {
        throw failure;
      }
      keep(cells);
      return answer(query);
    });
  }

  const captionOf = ({ loaded }: Awaited<ReturnType<typeof loadModel>>): string =>
    'content' in loaded ? loaded.content.caption.join(' ') : '';

  it('is drawn coarse first, says so, and then as fine as it is', async () => {
    record();
    const first = await loadModel(run, { view: 'attention', heads: '0-1' });
    // 64 heads of 64 × 64 cells are 1 MB, of 128 × 128 they are 4.
    expect(peaks).toEqual([64]);
    expect(captionOf(first)).toContain('Finer cells are still being read.');
    expect(captionOf(first)).toContain(
      'Compressor: largest of blocks, at most 64 along an axis, in code Peaks(cells=64) of Peaks(cells=256).'
    );
    expect(captionOf(first)).toContain('Each cell is the largest of 2 × 2 probabilities.');
    await first.rest();
    const loaded = await first.model.load(new AbortController().signal);
    expect(captionOf({ ...first, loaded })).not.toMatch(/still being read|Each cell is the largest/);
    expect(peaks[1]).toBeGreaterThanOrEqual(prompt);
    expect(peaks).toHaveLength(2);
  });

  it('stays coarse where nothing finer can be read, and is not asked for again and again', async () => {
    record(new Error('too large'));
    const first = await loadModel(run, { view: 'attention', heads: '0-1' });
    await first.rest();
    const loaded = await first.model.load(new AbortController().signal);
    expect(captionOf({ ...first, loaded })).toContain('Each cell is the largest of 2 × 2 probabilities.');
    expect(captionOf({ ...first, loaded })).not.toContain('still being read');
    expect(peaks.filter(cells => cells !== 64)).toHaveLength(1);
  });

  it('counts cells that fit into the bytes of a first picture', () => {
    expect(peaksWithin(1.8e6, 4, 4096, 32)).toBe(256);
    expect(peaksWithin(1.8e6, 8, 4096, 32)).toBe(128);
    expect(peaksWithin(1.8e6, 1024, 4096, 32)).toBe(16);
    expect(peaksWithin(24 << 20, 1, 100, 0)).toBe(1024);
  });
});
