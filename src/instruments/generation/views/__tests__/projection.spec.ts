import GOLDEN from '../../../../../protocol/fixtures/projection.json';
import { LinkedRun, WrittenRun } from '../../../../store/__tests__/written-run';
import { fullViewOptions } from '../../../../protocol/view-options';
import type { ProjectionOptions } from '../../../../protocol/views.generated';
import { MountedComposition } from '../../../../views/mount/mounted-composition';
import { readView, type IStill } from '../../../../views/still';
import type { IView } from '../../../../views/view';
import { loadModel } from '../../../../views/__tests__/model';
import { projectedRun, writeVectors, type IWritten } from './projected-run';
import {
  button,
  caption,
  control,
  key,
  plain,
  put,
  showView,
  text,
  texts,
  title,
  update
} from '../../../../views/__tests__/page';

type Choice = Partial<Omit<ProjectionOptions, 'view'>>;

const options = (more: Choice = {}): ProjectionOptions => ({
  view: 'projection',
  flag: 'HiddenStates',
  ...more
});

async function still(run: WrittenRun, more: Choice = {}): Promise<IStill> {
  const [found] = await readView(run, options(more));
  return found as IStill;
}

type Rows = readonly Record<string, unknown>[];
const points = ({ recipe }: IStill): Rows => recipe?.datasets['points'] ?? [];
const placesOf = (found: IStill): [number, number][] =>
  points(found).map(({ x, y }) => [Number(x), -Number(y)]);

describe('a projection', () => {
  it('is the picture of StandardScaler and PCA(2) for the golden points of MLP2_mat_mul', async () => {
    const golden = GOLDEN.components.find(({ name }) => name === 'MLP2_mat_mul');
    const run = new WrittenRun();
    const known = run.hello?.flags.find(({ name }) => name === 'HiddenStates');
    run.hello = { ...run.hello, flags: [{ ...known, name: 'MLP2_mat_mul', title: 'MLP2 output' }] } as never;
    writeVectors(run, {
      prompts: [Array.from({ length: 61 }, (_, at) => `${at}`).join(' ')],
      features: 24,
      change: (vector, _, position) => vector.set((golden?.points[position] ?? []) as number[])
    });
    run.rows = run.rows.map(row => ({ ...row, flag: 'MLP2_mat_mul' }));
    const found = await still(run, { flag: 'MLP2_mat_mul', standardise: true });
    const expected = golden?.standardised.scores ?? [];
    expect(placesOf(found)).toHaveLength(60);
    placesOf(found).forEach(([x, y], at) => {
      expect(x).toBeCloseTo(expected[at]?.[0] ?? NaN, 3);
      expect(y).toBeCloseTo(expected[at]?.[1] ?? NaN, 3);
    });
    expect(found.recipe?.params).toMatchObject({
      xName: 'PC 1, 50.4 % of variance',
      yName: 'PC 2, 34.9 % of variance'
    });
  });

  it('says what it is of, what was kept of each token, and what stands out', async () => {
    const found = await still(projectedRun());
    expect(found.title).toBe('Principal components of Hidden states, layer 0, generation 1');
    expect(found.caption).toEqual([
      'Of each token what the compressor kept: mean of 8 tiles, of 64 features.',
      'Tokens that the model wrote last and never read, which have no vectors: 2.'
    ]);
    expect(plain(found.summary)).toBe(
      'The two axes hold 93.6 % of the variance of 29 tokens. Farthest from the mean is “␣tree”, position 5: 2.1 times as far as the median token.'
    );
    expect(points(found)).toHaveLength(29);
    expect(points(found)[0]?.['text']).toBe('“The”, position 0, sequence 0');
  });

  it('has units as long across as down', async () => {
    for (const more of [{}, { layer: 3 }, { across: 3, up: 1 }]) {
      const { params, width = 0, height = 0 } = (await still(projectedRun(), more)).recipe ?? {};
      const span = (low: string, high: string): number => Number(params?.[high]) - Number(params?.[low]);
      expect(span('x0', 'x1') / width).toBeCloseTo(span('y0', 'y1') / height, 10);
    }
  });

  it('stays where it was when the layer changes, and says how it was turned', async () => {
    const turning: Partial<IWritten> = {
      change: (vector, _, position, layer) => {
        // From layer to layer another feature is the largest, and the sign is another one.
        const size = layer % 2 === 1 ? [-1, 1.4] : [1, 1];
        vector.set([(vector[0] ?? 0) * (size[0] ?? 1), (vector[1] ?? 0) * (size[1] ?? 1)]);
        vector[7] = 0.01 * position;
      }
    };
    const run = projectedRun(turning);
    const first = placesOf(await still(run));
    const agrees = (found: IStill): number =>
      placesOf(found).filter(([x, y], at) => {
        const [u = 0, v = 0] = first[at] ?? [];
        return x * u + y * v > 0;
      }).length / first.length;
    for (const layer of [1, 2, 3]) {
      const found = await still(run, { layer });
      expect(agrees(found)).toBeGreaterThan(0.85);
      expect(found.caption.find(each => each.includes('Procrustes'))).toMatch(
        new RegExp(`onto layer ${layer - 1}, so that the axes stay; residual [0-9.]+ `)
      );
    }
    const own = await still(run, { layer: 3, keep_axes: false });
    expect(own.caption.join()).not.toContain('Procrustes');
    expect(own.recipe?.params['xName']).toMatch(/^PC 1, [0-9.]+ % of variance$/);
  });

  it('names axes that were turned off the components so, with the variance along them', async () => {
    const run = projectedRun({
      change: (vector, _, __, layer) => {
        // Two features swap their sizes by and by.
        vector.set([(vector[0] ?? 0) * (1 - 0.3 * layer), (vector[1] ?? 0) * (1 + 0.5 * layer)]);
      }
    });
    const found = await still(run, { layer: 3 });
    const shares = [found.recipe?.params['xName'], found.recipe?.params['yName']].map(title =>
      Number(/^PC \d, turned, ([0-9.]+) % of variance$/.exec(String(title))?.[1])
    );
    const untouched = await still(run, { layer: 3, keep_axes: false });
    const own = [untouched.recipe?.params['xName'], untouched.recipe?.params['yName']].map(title =>
      Number(/([0-9.]+) %/.exec(String(title))?.[1])
    );
    const sum = (all: number[]): number => all.reduce((total, each) => total + each, 0);
    expect(sum(shares)).toBeCloseTo(sum(own), 0);
  });

  it.each([
    ['prompt', '“The cat sat on the mat an…”', 2],
    ['token', '“␣the”, 7 ×', 15],
    ['position', '0', 5],
    ['step', '1', 1]
  ] as const)('is coloured by %s', async (color, first, count) => {
    const found = await still(projectedRun(), { color });
    const key = found.recipe?.datasets['key'] ?? [];
    expect(key).toHaveLength(count);
    expect(key[0]?.['text']).toBe(first);
    expect(found.recipe?.texts['colorTitle']).toBe(color);
    const looks = new Set(key.map(each => `${String(each['color'])} ${String(each['shape'])}`));
    expect(looks.size).toBe(count);
    if (color === 'prompt' || color === 'token') {
      const drawn = points(found).map(each => `${String(each['color'])} ${String(each['shape'])}`);
      expect(drawn.every(each => looks.has(each))).toBe(true);
    }
    expect(JSON.stringify(found.inDark?.().datasets)).not.toBe(JSON.stringify(found.recipe?.datasets));
  });

  it('gives texts that are more than there are colours another shape, and the rest one look', async () => {
    const prompts = Array.from({ length: 30 }, (_, at) => `p${at} a b`);
    const found = await still(projectedRun({ prompts }));
    const key = found.recipe?.datasets['key'] ?? [];
    expect(new Set(key.map(each => each['shape'])).size).toBe(3);
    expect(key.at(-1)?.['text']).toBe('other prompts');
  });

  it('marks the group that is looked at, and a position in every sequence', async () => {
    const found = await still(projectedRun(), { group: '1:0:3-5,1:1:8,9:0:1', position: 4 });
    const opacities = points(found).map(each => Number(each['opacity']));
    expect(opacities.filter(each => each > 0.5)).toHaveLength(4);
    expect(found.recipe?.datasets['rings']).toHaveLength(2);
    expect(found.caption.at(-1)).toBe('A group of 4 tokens stands out; the others are faint.');
  });

  it('counts what it leaves out: values that are not finite, tokens without rows, features that do not vary', async () => {
    const run = projectedRun({
      change: (vector, sequence, position) => {
        vector[2] = 5;
        if (sequence === 0 && position === 2) {
          vector[1] = NaN;
        }
        if (sequence === 1 && position === 3) {
          vector[0] = -Infinity;
        }
      }
    });
    const [text] = run.written.get('tokens') ?? [];
    run.write('tokens', { ...text, position: 40, tensor_step: 7, piece: 'late' });
    const { caption, summary } = await still(run, { standardise: true });
    expect(caption).toEqual(
      expect.arrayContaining([
        'Each feature is divided by its deviation.',
        'Features that are the same in every token, and add nothing: 1.',
        'Tokens whose tensors are not here, left out: 1.'
      ])
    );
    expect(summary).toMatch(/^Tokens with values that are not finite, left out: 2\. The two axes/);
  });

  it('draws several generations, and leaves out what was traced with other features', async () => {
    const run = projectedRun();
    writeVectors(run, { prompts: ['A frog sat on the log all day'], generation: 2, step: 5, features: 6 });
    writeVectors(run, { prompts: ['The frog sat on the mat'], generation: 3, step: 9, compressor: 'NoOp()' });
    expect((await still(run)).title).toContain('generation 3');
    const found = await still(run, { generations: '1-2' });
    expect(found.title).toContain('2 generations');
    expect(found.caption).toContain('Tokens that were traced with other features, left out: 29.');
    expect((await still(run, { generations: '3' })).caption[0]).toBe('Of each token all 8 features.');
    const both = await still(run, { generations: '1,3' });
    expect(both.recipe?.datasets['key']?.at(-1)?.['text']).toBe('generation 3: “The frog sat on the mat”');
  });

  it('lays points out with UMAP, the same for the same seed', async () => {
    const more = { method: 'umap', neighbors: 5, seed: 3 } as const;
    const [one, two, other] = [
      await still(projectedRun(), more),
      await still(projectedRun(), more),
      await still(projectedRun(), { ...more, seed: 4 })
    ];
    expect(placesOf(one)).toEqual(placesOf(two));
    expect(placesOf(one)).not.toEqual(placesOf(other));
    expect(one.title).toBe('UMAP of Hidden states, layer 0, generation 1');
    expect(one.recipe?.params['xName']).toBe('UMAP 1');
    expect(one.summary).toBe('29 tokens, laid out by their 4 nearest neighbours.');
    expect(one.caption.at(-1)).toContain('Seed 3.');
  });

  it('says how far UMAP is, stops, and begins again', async () => {
    const { model, loaded } = await loadModel(projectedRun(), options({ method: 'umap', neighbors: 5 }));
    const note = (of: typeof loaded): { text: string; press: () => void } => {
      const [first] = 'content' in of ? (of.content.notes ?? []) : [];
      return { text: first?.text ?? '', press: () => first?.action.run() };
    };
    const again = async (): Promise<typeof loaded> => model.load(new AbortController().signal);
    expect(note(loaded).text).toBe('UMAP, 0 % done');
    note(loaded).press();
    const stopped = await again();
    expect(note(stopped).text).toMatch(/^UMAP was stopped at \d+ %: the points have not settled\.$/);
    note(stopped).press();
    expect(note(await again()).text).toBe('UMAP, 0 % done');
    model.dispose?.();
  });

  it('waits with UMAP until the text is written', async () => {
    const run = projectedRun();
    run.write('generations', { generation: 1, state: 'running', time: 9, sequences: 2 });
    const { caption } = await still(run, { method: 'umap' });
    expect(caption.at(-1)).toBe('It begins when the text is written; until then the first two components.');
  });
});

describe('where there is nothing to project', () => {
  const said = async (run: WrittenRun, more: Choice = {}): Promise<string> => {
    const found = await still(run, more);
    expect(found.recipe).toBeNull();
    return plain(found.caption.at(-1) ?? '');
  };

  it('says that nothing was generated, or not that', async () => {
    const begun = new WrittenRun();
    begun.generated(1, { prompts: ['a'] }, { state: 'running' });
    const nothing = await said(new WrittenRun());
    const another = await said(projectedRun(), { generations: '7' });
    const unread = await said(begun);
    // Three reasons, each in words of its own, and named by what was asked for.
    expect(new Set(['', nothing, another, unread]).size).toBe(4);
    expect(nothing).not.toMatch(/\d/);
    expect(another).toMatch(/7.*\b1\b/);
    expect(unread).toMatch(/\b1\b/);
  });

  it('says that two points make no picture, and neither do equal ones', async () => {
    expect(await said(projectedRun({ prompts: ['a b c'] }))).toBe(
      'A projection needs 3 tokens with vectors; here are 2.'
    );
    expect(await said(projectedRun({ change: vector => vector.fill(2) }))).toBe(
      'All 29 vectors are equal: there is no direction to draw them along.'
    );
  });

  it('says how to trace a flag that was not, and which layers there are', async () => {
    const run = projectedRun({ layers: [0, 2] });
    expect(await said(run, { layer: 1 })).toBe(
      'Hidden states of layer 1 was not traced while generation 1 was written. Trace it, and generate again:'
    );
    expect(await said(run, { layer: 9 })).toBe('Hidden states has no layer 9.');
    expect(await said(run, { flag: 'MLP1_mat_mul' })).toBe(
      'MLP1 output of layer 0 was not traced while generation 1 was written. Trace it, and generate again:'
    );
    expect(await said(run, { flag: 'RawAttentionScore_mat_mul' })).toBe(
      'Attention probabilities is no vector of a token: it has no axis of positions.'
    );
    run.connection = { kind: 'live' };
    run.rows = [];
    expect(await said(run)).toBe('Hidden states is not traced.');
  });
});

describe('on a page', () => {
  let run: LinkedRun;
  let view: IView;
  let copied: string[];

  beforeEach(() => {
    run = new LinkedRun();
    writeVectors(run, {
      prompts: ['The cat sat on the mat .', 'A cat ran in the sun .'],
      layers: [0, 1],
      features: 6
    });
    copied = [];
    Object.assign(navigator, {
      clipboard: { writeText: (text: string) => Promise.resolve(void copied.push(text)) }
    });
  });

  async function show(more: Choice = {}): Promise<void> {
    view = await showView(run, options(more));
  }

  const stage = (): Element => document.querySelector('.jp-MegalensStage') as Element;

  /** Pixels of a token on the page. */
  function pixelsOf(token: number): { clientX: number; clientY: number } {
    const part = view instanceof MountedComposition ? view.parts.get('points') : undefined;
    const chart = part as unknown as { picture: { chart: import('../../../../charts').Chart } };
    const { recipe } = chart.picture.chart;
    const [frame] = chart.picture.chart.frames();
    const { x0, x1, y0, y1 } = recipe.params as Record<string, number>;
    const { x, y } = recipe.datasets['points']?.[token] as { x: number; y: number };
    const along = (value: number, low = 0, high = 1): number => (value - low) / (high - low);
    return {
      clientX: (frame?.left ?? 0) + along(x, x0, x1) * (frame?.width ?? 0),
      clientY: (frame?.top ?? 0) + along(y, y0, y1) * (frame?.height ?? 0)
    };
  }

  const mouse = (type: string, at: object, init: object = {}): MouseEvent =>
    Object.assign(new MouseEvent(type, { bubbles: true, button: 0, ...at, ...init }), { pointerId: 1 });

  it('has units as long across as down, in the plot that came out', async () => {
    await show();
    const [a, b] = [pixelsOf(0), pixelsOf(5)];
    const { recipe } = (await readView(run, options()))[0] as IStill;
    const [p, q] = [recipe?.datasets['points']?.[0], recipe?.datasets['points']?.[5]] as {
      x: number;
      y: number;
    }[];
    expect((a.clientX - b.clientX) / ((p?.x ?? 0) - (q?.x ?? 0))).toBeCloseTo(
      (a.clientY - b.clientY) / ((p?.y ?? 0) - (q?.y ?? 0)),
      6
    );
  });

  it('tells of the token under the pointer and its neighbours, and pins its position on a click', async () => {
    await show();
    stage().dispatchEvent(mouse('pointermove', pixelsOf(1)));
    const tip = text('.jp-MegalensTooltip');
    expect(tip).toContain('“␣cat”, position 1');
    expect(tip).toContain('prompt“The cat sat on the mat .”');
    expect(tip).toContain('most alike, by cosine');
    // The same word in the other prompt.
    expect(tip).toMatch(/by cosine“␣cat”, position 1/);
    stage().dispatchEvent(mouse('pointerdown', pixelsOf(1)));
    document.dispatchEvent(mouse('pointerup', pixelsOf(1)));
    stage().dispatchEvent(mouse('click', pixelsOf(1)));
    expect(run.link.position).toEqual({ generation: 1, sequence: 0, position: 1 });
    await view.settled();
    expect(text('[data-control="pin-position"]')).toContain('Pinned: position 1');
    expect(document.querySelectorAll('.rings_marks path, .rings_marks > *').length).toBeGreaterThan(0);
    run.link.pinPosition({ generation: 1, sequence: 1, position: 3 });
    await view.settled();
    expect(text('[data-control="pin-position"]')).toContain('Pinned: position 3');
  });

  it('looks at the tokens in a loop that is drawn with Shift, and at no others of its box', async () => {
    await show({ layer: 1 });
    const { clientX, clientY } = pixelsOf(1);
    const at = (x: number, y: number): { clientX: number; clientY: number } => ({
      clientX: clientX + x,
      clientY: clientY + y
    });
    const draw = async (...corners: readonly (readonly [number, number])[]): Promise<void> => {
      const [[x, y] = [0, 0]] = corners;
      stage().dispatchEvent(mouse('pointerdown', at(x, y), { shiftKey: true }));
      corners.slice(1).forEach(corner => document.dispatchEvent(mouse('pointermove', at(...corner))));
      expect(document.querySelectorAll('.jp-MegalensLinked.jp-mod-line path')).toHaveLength(2);
      document.dispatchEvent(mouse('pointerup', at(x, y)));
      await view.settled();
    };
    await draw([-5, -5], [5, -5], [5, 5], [-5, 5]);
    expect((view.options as ProjectionOptions).group).toMatch(/^1:0:1/);
    expect(document.querySelector('.jp-MegalensLinked.jp-mod-line')).toBeNull();
    // The token lies in the bay of the loop.
    await draw([-9, -9], [9, -9], [9, 9], [0, -5], [-9, 9]);
    expect((view.options as ProjectionOptions).group).not.toMatch(/^1:0:1/);
  });

  it('lists the tokens in a box that is drawn with Ctrl and Shift, and copies what steers by them', async () => {
    await show({ layer: 1 });
    const { clientX, clientY } = pixelsOf(1);
    stage().dispatchEvent(
      mouse('pointerdown', { clientX: clientX - 5, clientY: clientY - 5 }, { shiftKey: true, ctrlKey: true })
    );
    document.dispatchEvent(mouse('pointermove', { clientX: clientX + 5, clientY: clientY + 5 }));
    document.dispatchEvent(mouse('pointerup', { clientX: clientX + 5, clientY: clientY + 5 }));
    await view.settled();
    const { group } = view.options as ProjectionOptions;
    expect(group).toMatch(/^1:0:1/);
    await update({ group: '1:0:1-2,1:1:1' });
    expect(text('[data-control="group"]')).toContain('Group: 3 tokens');
    const rows = texts('.jp-MegalensTable tbody tr');
    expect(rows).toHaveLength(13 - 1);
    expect(rows.slice(0, 3).every(row => row.includes('yes'))).toBe(true);
    expect(rows.slice(3).every(row => row.includes('neighbour'))).toBe(true);
    expect(caption()).toContain('A group of 3 tokens stands out');
    button('Steer by this direction')?.click();
    await Promise.resolve();
    expect(copied).toEqual([
      'direction = run.direction("HiddenStates", layer=1, generation=1, tokens=[(0, 1), (0, 2), (1, 1)])\n' +
        'megalens.save_direction("direction.safetensors", direction)'
    ]);
    await view.settled();
    expect(document.body.textContent).toContain('Two lines that save the direction are on the clipboard');
    button('␣cat')?.click();
    expect(run.link.position).toMatchObject({ generation: 1, position: 1 });
    document.querySelector<HTMLElement>('[data-control="group"]')?.click();
    await view.settled();
    expect(document.querySelector('.jp-MegalensTable')).toBeNull();
  });

  it('goes from token to token by the arrows, and puts them into the group with G', async () => {
    await show();
    const told = ['ArrowRight', 'ArrowRight', 'ArrowDown', 'Home', 'End'].map(name =>
      key(name).replace(/:.*/, '')
    );
    expect(told).toEqual([
      '“The”, position 0, sequence 0',
      '“␣cat”, position 1, sequence 0',
      '“␣cat”, position 1, sequence 1',
      '“The”, position 0, sequence 0',
      '“␣sun”, position 5, sequence 1'
    ]);
    expect(key('g')).toContain('The group has 1 token.');
    await view.settled();
    expect(view.options).toMatchObject({ group: '1:1:5' });
    key('g');
    await view.settled();
    expect(view.options).toMatchObject({ group: '' });
  });

  it('moves through the layers by a slider, and chooses everything by its toolbar', async () => {
    await show();
    expect(control('layer').querySelector('input')?.max).toBe('1');
    await put('layer', '1');
    expect(view.options).toMatchObject({ layer: 1 });
    expect(title()).toContain('layer 1');
    await put('color', 'token');
    await put('standardise', 'true');
    await put('keep_axes', 'false');
    await put('across', '3');
    await put('method', 'umap');
    await put('neighbors', '4');
    expect(view.options).toMatchObject({
      color: 'token',
      standardise: true,
      keep_axes: false,
      across: 3,
      method: 'umap',
      neighbors: 4
    });
    expect(fullViewOptions(view.options)).toEqual(view.options);
    expect(title()).toContain('UMAP of Hidden states, layer 1');
    expect(document.querySelector('.jp-MegalensNotes')?.textContent).toBe('');
  });

  it('follows the text that is being written, and leaves the rest of the run alone', async () => {
    await show();
    const points = (): number => document.querySelectorAll('.points_marks path, .points_marks > *').length;
    const before = points();
    writeVectors(run, { prompts: ['A frog ran'], generation: 2, step: 4, layers: [0], features: 6 });
    writeVectors(run, {
      prompts: ['A frog ran in the sun now .'],
      generation: 3,
      step: 8,
      layers: [0],
      features: 6
    });
    await new Promise(done => setTimeout(done, 400));
    await view.settled();
    expect(title()).toContain('generation 3');
    expect(points()).not.toBe(before);
    const { asked } = run;
    const count = asked.length;
    run.add({ step: 100, flag: 'HiddenStates' });
    await new Promise(done => setTimeout(done, 400));
    expect(asked).toHaveLength(count);
  });
});
