import { ColorScale, contrastColor, drawSVG, LIGHT_THEME, type IRecipe, type Row } from '../../../../charts';
import { readPicture } from '../../../../charts/__tests__/read-png';
import type { LensOptions } from '../../../../protocol/views.generated';
import { Lens } from '../../store/effects';
import { streamRows, LinkedRun, WrittenRun } from '../../../../store/__tests__/written-run';
import { leadsOf, medianLayer } from '../lens/lens-map';
import type { IContent } from '../../../../views/shared/content';
import type { IView } from '../../../../views/view';
import { loadModel } from '../../../../views/__tests__/model';
import { checkRecipes } from '../../../../views/__tests__/recipe-checks';
import { caption, key, plain, settled, showView, text } from '../../../../views/__tests__/page';

/** Rank of the token that came next, by position and then layer; -1 where none did. */
const RANKS = [
  [5, 0, 3, 0],
  [9, 0, 0, 0],
  [9, 9, 9, 2],
  [-1, -1, -1, -1]
];
const PIECES = ['The', ' capital', ' of', ' France'];

/** Rows of the lens: the best candidate has the probability 0.1 + 0.2 × layer, and is the token that came next where its rank is 0. */
function lensRows(ranks: readonly (readonly number[])[] = RANKS): Record<string, unknown>[] {
  return ranks.flatMap((layers, position) =>
    layers.map((rank, layer) => ({
      generation: 3,
      position,
      layer,
      ids: [rank === 0 ? position + 1 : 900, 901],
      texts: [rank === 0 ? (PIECES[position + 1] ?? '?') : ' cat', '\u202eb'],
      probabilities: [0.1 + 0.2 * layer, 0.05],
      token: rank < 0 ? -1 : position + 1,
      token_rank: rank,
      token_probability: rank < 0 ? NaN : 0.5 / (1 + rank),
      entropy: 4 - layer
    }))
  );
}

function lensRun(ranks = RANKS, pieces: readonly string[] = PIECES): WrittenRun {
  const run = new WrittenRun();
  run.generated(3, { prompts: ['The capital'], lens: 2 });
  run.text(3, pieces);
  run.write('lens', ...lensRows(ranks));
  return run;
}

const longRun = (count: number): WrittenRun =>
  lensRun(
    Array.from({ length: count }, () => [1, 0]),
    Array.from({ length: count }, (_, at) => ` w${at}`)
  );

async function content(run: WrittenRun, options: Partial<LensOptions> = {}): Promise<IContent> {
  const { loaded } = await loadModel(run, { view: 'lens', ...options });
  if (!('content' in loaded)) {
    throw new Error(`Expected a picture, got: ${loaded.state.sentence}`);
  }
  return loaded.content;
}

const rows = ({ recipe }: Pick<IContent, 'recipe'>, dataset: string): readonly Row[] =>
  recipe?.datasets[dataset] ?? [];

describe('the layer in which a token first leads', () => {
  it('is the first one from which on it leads up to the deepest', () => {
    const leads = leadsOf(new Lens(streamRows('lens', lensRows())));
    expect(leads).toEqual([
      { position: 0, layer: 3 },
      { position: 1, layer: 1 },
      { position: 2, layer: null }
    ]);
    expect(medianLayer(leads)).toBe(1);
    expect(medianLayer([])).toBeNaN();
  });

  it('is not known of a position that is not read to its end', () => {
    const some = lensRows([
      [0, 0, 0, 0],
      [0, 0, 0, 0]
    ]).filter(({ layer, position }) => position === 0 || layer !== 3);
    expect(leadsOf(new Lens(streamRows('lens', some)))).toEqual([{ position: 0, layer: 0 }]);
  });

  it('is said and outlined, from that layer up to the deepest one', async () => {
    const found = await content(lensRun());
    expect(found.summary).toBe(
      '“ France”, which came after position 2, leads in no layer up to the last one (rank 2 there). ' +
        'Over 2 positions the final token first leads in layer 1 (median; layers 1 to 3). ' +
        'At 1 position it does not lead in the last layer.'
    );
    expect(rows(found, 'outlines')).toEqual([
      { x: -0.46, x2: 0.46, y: -0.46, y2: 0.46 },
      { x: 0.54, x2: 1.46, y: -0.46, y2: 2.46 }
    ]);
    expect(found.caption.join(' ')).toContain('Outlined: from that layer up to layer 3');
    const other = await content(lensRun(), { position: 1 });
    expect(other.summary).toContain(
      '“ of”, which came after position 1, first leads in layer 1 of layers 0 to 3.'
    );
  });

  it('counts layers that are not drawn', async () => {
    const found = await content(lensRun(), { layers: '0-2' });
    expect(found.title).toBe('Logit lens of “The capital”, generation 3, layers 0 to 2');
    expect(rows(found, 'outlines')).toEqual([{ x: 0.54, x2: 1.46, y: -0.46, y2: 1.46 }]);
    expect(found.caption).toContain('Layers that are not drawn count in this.');
  });
});

describe('the picture', () => {
  /** Colours of the cells, the deepest layer first. */
  const colorsOf = ({ recipe }: Pick<IContent, 'recipe'>): string[][] => {
    const { width, height, data } = readPicture(recipe?.datasets['pictures']?.[0]?.['url']);
    return Array.from({ length: height }, (_, row) =>
      Array.from({ length: width }, (_, column) => {
        const [red = 0, green = 0, blue = 0, alpha] = data.subarray(4 * (row * width + column));
        return alpha === 0 ? '' : `#${((red << 16) | (green << 8) | blue).toString(16).padStart(6, '0')}`;
      })
    );
  };
  const colored = (scale: ColorScale, value: number): string => scale.colorAt(scale.entry(value) / 255);

  it('has the deepest layer on top, coloured by probability from 0 to 1, and the tokens under it', async () => {
    const found = await content(lensRun());
    const scale = new ColorScale([0, 1]);
    const expected = [3, 2, 1, 0].map(layer =>
      PIECES.map(() => colored(scale, Math.fround(0.1 + 0.2 * layer)))
    );
    expect(colorsOf(found)).toEqual(expected);
    expect(found.recipe?.params).toMatchObject({
      rowAt: [0, 1, 2, 3],
      rowText: ['3', '2', '1', '0'],
      labels: { 0: 'The', 1: '␣capital', 2: '␣of', 3: '␣France' },
      legendText: ['0', '0.25', '0.5', '0.75', '1']
    });
    expect(found.extent).toEqual({ x: [-0.5, 3.5], y: [-0.5, 3.5] });
    expect(found.home).toBeUndefined();
  });

  it('is coloured by what is asked for; bright is sure, and where no token came there is nothing', async () => {
    const final = colorsOf(await content(lensRun(), { color: 'final' }));
    const scale = new ColorScale([0, 1]);
    expect(final[0]).toEqual([0.5, 0.5, 0.5 / 3].map(value => colored(scale, value)).concat(['']));
    const rank = colorsOf(await content(lensRun(), { color: 'rank' }));
    expect(rank[0]?.slice(0, 2)).toEqual([scale.colorAt(1), scale.colorAt(1)]);
    expect(rank[3]?.[1]).toBe(scale.colorAt(0));
    const entropy = await content(lensRun(), { color: 'entropy' });
    expect(entropy.recipe?.texts['legendTitle']).toBe('entropy (nats)');
    expect(colorsOf(entropy)[3]).toEqual(PIECES.map(() => scale.colorAt(0)));
  });

  it('has in each cell its best candidate, black or white as the colour asks', async () => {
    const cells = rows(await content(lensRun()), 'cells');
    expect(cells).toHaveLength(16);
    expect(cells.find(({ x, y }) => x === 1 && y === 0)).toMatchObject({ text: '␣of', color: '#000000' });
    expect(cells.find(({ x, y }) => x === 1 && y === 3)).toMatchObject({ text: '␣cat', color: '#ffffff' });
  });

  it('spreads large ranks by their magnitude', async () => {
    const found = await content(lensRun([[30_000, 100, 3, 0]], ['The', ' end']), { color: 'rank' });
    const [low = '', next = ''] = (found.recipe?.params['legendText'] as string[]) ?? [];
    expect([low, plain(next)]).toEqual(['0', '13.6']);
  });

  it('is a file of XML with whole characters, whatever tokens hold', async () => {
    const odd = [
      '\u0000\u202e',
      '\ud83d',
      '<0xE2>',
      'e' + '\u0301'.repeat(50),
      '👩‍👩‍👧‍👧 family of four',
      '$xTitle',
      '__proto__',
      ''
    ];
    const run = lensRun(
      odd.map(() => [1, 1]),
      odd
    );
    run.write(
      'lens',
      ...odd.map((text, position) => ({
        generation: 3,
        position,
        layer: 2,
        ids: [1],
        texts: [text],
        probabilities: [0.5],
        token_rank: -1,
        token: -1
      }))
    );
    const { recipe, title, caption } = await content(run);
    const labels = Object.values(recipe?.params['labels'] as object) as string[];
    expect(labels.slice(0, 4)).toEqual(['␀\ufffd', '\ufffd', '<0xE2>', 'e\u0301\u0301\u0301']);
    expect(labels[4]).toMatch(/^👩‍👩‍👧‍👧␣fa/u);
    expect(labels.slice(5)).toEqual(['$xTitle', '__proto__', '∅']);
    const svg = await drawSVG(recipe as IRecipe, { theme: LIGHT_THEME, words: { title, caption } });
    expect(new DOMParser().parseFromString(svg, 'image/svg+xml').querySelector('parsererror')).toBeNull();
  });

  it('shows of a long text the newest positions, or those about the one that is looked at, and says which', async () => {
    const newest = await content(longRun(200));
    expect(newest.extent.x).toEqual([-0.5, 199.5]);
    expect(newest.home).toEqual([187.5, 199.5]);
    expect(newest.recipe?.params).toMatchObject({ x0: 187.5, x1: 199.5 });
    expect(newest.caption[0]).toBe('Positions 188 to 199 of 0 to 199 are drawn.');
    expect(new Set(rows(newest, 'cells').map(({ x }) => x)).size).toBeGreaterThanOrEqual(12);
    const looked = await content(longRun(200), { position: 20 });
    expect(looked.home).toEqual([14.5, 26.5]);
    expect(looked.summary).toContain('after position 20');
  });

  it('takes no more memory than a picture may, whatever rows say', () => {
    const hostile = [
      { position: 1 << 30, layer: 0 },
      { position: -1, layer: 0 },
      { position: 0, layer: 1 << 20 },
      { position: 5, layer: 1, ids: [1, 2], texts: [], probabilities: [] }
    ];
    const lens = new Lens(streamRows('lens', hostile));
    expect([lens.layers, lens.positions]).toEqual([[1], [5]]);
    expect(lens.at(1, 5)?.candidates).toEqual([
      { id: 1, text: '', probability: NaN },
      { id: 2, text: '', probability: NaN }
    ]);
    expect(new Lens({ length: 1, columns: {}, evictedRows: 0, sampledEvery: 1 }).positions).toEqual([]);
  });
});

it('has black or white text that is read on every colour', () => {
  const light = (color: string): number => {
    const [red = 0, green = 0, blue = 0] = [1, 3, 5].map(at => {
      const share = parseInt(color.slice(at, at + 2), 16) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const scale = new ColorScale([0, 1]);
  for (let at = 0; at <= 255; at += 1) {
    const back = scale.colorAt(at / 255);
    const [one = 0, other = 0] = [light(back), light(contrastColor(back))].sort((a, b) => b - a);
    expect((one + 0.05) / (other + 0.05)).toBeGreaterThan(4.5);
  }
});

describe('a cell', () => {
  it('says its candidates, and where the token that came in the end is among them', async () => {
    const { model } = await loadModel(lensRun(), { view: 'lens' });
    const frame = { left: 0, top: 0, width: 100, height: 100, facet: {} };
    const mark = model.probe({ frame, x: 1.2, y: 0.3, down: 0 });
    expect(mark).toEqual({ facet: null, x: [0.5, 1.5], y: [-0.5, 0.5] });
    expect(model.tipOf(mark as never)).toEqual({
      heading: 'layer 3, position 1, “ capital”',
      lines: [
        { name: '▸ “ of”', value: '0.7' },
        { name: '“\ufffdb”', value: '0.05' },
        { name: 'in the end “ of”', value: '0.5, rank 0' },
        { name: 'entropy', value: '1 nats' }
      ]
    });
    expect(model.probe({ frame, x: 9, y: 0, down: 0 })).toBeNull();
  });

  it('is reached by the keys, and copied', async () => {
    const { model } = await loadModel(lensRun(), { view: 'lens' });
    expect(model.move('ArrowLeft')?.said).toBe(
      'layer 3, position 3, “ France”: \u2002cat 0.7'.replace('\u2002', ' ')
    );
    expect(model.move('ArrowLeft')?.said).toBe(
      'layer 3, position 2, “ of”:  cat 0.7; in the end “ France”, rank 2'
    );
    expect(model.move('ArrowDown')?.said).toContain('layer 2, position 2');
    expect(model.move('copy')?.copy).toBe(' cat 0.5; in the end “ France”, rank 9');
    expect(model.move('x')).toBeNull();
  });

  it('is where the sentence points: the first layer that leads at the position that is looked at', async () => {
    const { model } = await loadModel(lensRun(), { view: 'lens', position: 1 });
    expect(model.insight?.()).toEqual({ facet: null, x: [0.5, 1.5], y: [1.5, 2.5] });
    expect(model.pinned?.()).toEqual({ facet: null, x: [0.5, 1.5], y: null });
    expect(model.marksOf({ layer: 3, step: null, generation: 3, sequence: 0, position: 2 }).marks).toEqual([
      { facet: null, x: [1.5, 2.5], y: null },
      { facet: null, x: [-0.5, 3.5], y: [-0.5, 0.5] }
    ]);
    expect(model.marksOf({ layer: null, step: null, generation: 4, sequence: 0, position: 2 }).marks).toEqual(
      []
    );
  });
});

describe('what is missing', () => {
  const said = async (
    run: WrittenRun,
    options: Partial<LensOptions> = {}
  ): Promise<readonly [string, string | undefined]> => {
    const { loaded } = await loadModel(run, { view: 'lens', ...options });
    return 'state' in loaded ? [loaded.state.sentence, loaded.state.code] : ['a picture', undefined];
  };
  const code = 'lab.generate("…", lens=5)';

  it('is said, with the line that gets it', async () => {
    const run = new WrittenRun();
    expect(await said(run)).toEqual(['No text was read with the logit lens. In a cell:', code]);
    run.generated(1, { prompts: ['a'] });
    expect(await said(run, { generation: 1 })).toEqual([
      'Generation 1 was written without the logit lens. In a cell:',
      code
    ]);
    expect(await said(run, { generation: 7 })).toEqual(['There is no generation 7. In a cell:', code]);
    run.generated(2, { prompts: ['a'], lens: 5 }, { state: 'running' });
    expect(await said(run)).toEqual(['Nothing of generation 2 has been read yet.', undefined]);
    run.generated(2, { prompts: ['a'], lens: 5 }, { state: 'failed', message: 'Out of memory.', time: 9 });
    expect(await said(run)).toEqual([
      'Generation 2 ended before anything was read. Out of memory.',
      undefined
    ]);
    expect(await said(lensRun(), { layers: '7' })).toEqual([
      'Layers 7 were not read with the logit lens.',
      undefined
    ]);
  });

  it('is written again with the lens, where somebody can be asked', async () => {
    const run = new WrittenRun();
    const asked: unknown[] = [];
    const generate = async (request: unknown): Promise<unknown> => asked.push(request);
    Object.assign(run, { generate });
    run.generated(1, { prompts: ['a'], seed: 3 });
    const { loaded } = await loadModel(run, { view: 'lens' });
    if (!('state' in loaded)) {
      throw new Error('Expected no picture.');
    }
    expect(loaded.state.action.label).toBe('Write it again with the lens');
    await loaded.state.action.run();
    expect(asked).toEqual([{ prompts: ['a'], seed: 3, lens: 5 }]);
  });

  it('is of the model, where that has none', async () => {
    const run = new WrittenRun();
    run.hello = {
      ...run.hello,
      generation: { prompts: 8, tokens: 64, no_lens: 'its output layer is elsewhere.' }
    } as never;
    expect((await said(run))[0]).toBe('This model has no logit lens: its output layer is elsewhere.');
  });

  it('is a newer text, which was not read with it', async () => {
    const run = lensRun();
    run.generated(4, { prompts: ['b'] });
    const { notes = [] } = await content(run);
    expect(notes.map(({ text }) => text)).toEqual([
      'Generation 4, which is newer, was written without the logit lens: lab.generate("…", lens=5) reads with it.'
    ]);
  });
});

describe('the page', () => {
  const show = (run: WrittenRun): Promise<IView> => showView(run, { view: 'lens' });

  it('pins a position, and shows the one that is pinned in another view', async () => {
    const run = new LinkedRun();
    const { written } = lensRun();
    written.forEach((cells, stream) => run.write(stream, ...cells));
    const view = await show(run);
    key('ArrowLeft');
    key('ArrowLeft');
    key('p');
    expect(run.link.position).toEqual({ generation: 3, sequence: 0, position: 2 });
    await view.settled();
    expect(document.querySelector('.jp-MegalensPinned')).not.toBeNull();
    run.link.pinPosition({ generation: 3, sequence: 0, position: 1 });
    await view.settled();
    expect(view.summary()).toContain('“ of”, which came after position 1');
  });

  it('shows a window that zooming out leaves, and the whole then', async () => {
    await show(longRun(200));
    expect(caption()).toContain('Positions 191 to 199 of 0 to 199');
    for (let at = 0; at < 20; at += 1) {
      key('-');
    }
    await new Promise(done => setTimeout(done, 300));
    await settled();
    expect(caption()).not.toContain('Positions');
    expect(caption()).toContain('Cells this narrow have no text and no outline: zoom in to see them.');
  });

  checkRecipes([['a lens', { view: 'lens' }, 1]], lensRun);
  checkRecipes([['a lens of many tokens', { view: 'lens' }, 1]], () => longRun(50));

  it('follows a text that is being read', async () => {
    const run = lensRun(RANKS.slice(0, 1));
    await show(run);
    run.write('lens', ...lensRows().filter(({ position }) => position === 1));
    await new Promise(done => setTimeout(done, 300));
    await settled();
    expect(text('.jp-MegalensView-insight')).toContain('which came after position 1');
  });
});
