import { COLORS, ColorScale, type Row } from '../../../../charts';
import { readPicture } from '../../../../charts/__tests__/read-png';
import type { GenerateRequest } from '../../../../protocol/messages.generated';
import type { EffectsOptions } from '../../../../protocol/views.generated';
import { effectsOf } from '../../store/effects';
import { streamRows, WrittenRun } from '../../../../store/__tests__/written-run';
import { pointRequest, requestCode } from '../effects/effects-subject';
import { sharing } from '../effects/series-picture';
import { sweepOf, sweepSeries } from '../effects/positions-picture';
import type { IContent } from '../../../../views/shared/content';
import type { IView } from '../../../../views/view';
import { loadModel } from '../../../../views/__tests__/model';
import { checkRecipes } from '../../../../views/__tests__/recipe-checks';
import { caption, key, settled, showView, texts, update } from '../../../../views/__tests__/page';

type Cells = Record<string, unknown>;

const CLEAN = ['The', ' capital', ' of', ' France', ' is', ' Paris'];
const PERTURBED = ['The', ' capital', ' of', ' France', ' was', ' London'];
const PERTURB: GenerateRequest['perturb'] = {
  sites: { system: { kind: { name: 'noise1', params: { coefficient: 0.1 } }, layers: '2-3' } },
  seed: 7
};
const REQUEST: GenerateRequest = { prompts: ['The capital of'], tokens: 3, perturb: PERTURB };

const effect = (row: Cells): Cells => ({
  generation: 2,
  control: 1,
  layer: -1,
  point: -1,
  value: NaN,
  divergence: -1,
  kl: NaN,
  changed: NaN,
  distance: NaN,
  ...row
});

/** KL divergence by position, and whether the best next token is another one. */
const KL = [0.25, 0.5, 0.125, 2, 1];
const CHANGED = [0, 0, 0, 1, 1];

/** Layer 1 is as before, layers 2 and 3 are moved by 0.1 × layer × (position + 1). */
const positionRows = (): Cells[] => [
  ...KL.map((kl, position) => effect({ position, kl, changed: CHANGED[position] })),
  ...KL.flatMap((_, position) =>
    [1, 2, 3].map(layer =>
      effect({ position, layer, distance: layer < 2 ? 0 : 0.1 * layer * (position + 1) })
    )
  ),
  effect({ position: -1, kl: 0.775, changed: 0.4, divergence: 4 })
];

/** Three points over two sequences; the text of the first point is the same. */
const sweepRows = (settings: readonly (number | string)[]): Cells[] =>
  settings.flatMap((setting, point) =>
    [0, 1].flatMap(sequence => {
      const at = {
        point,
        setting: String(setting),
        value: typeof setting === 'number' ? setting : NaN,
        sequence,
        position: -1
      };
      return [
        effect({
          ...at,
          kl: point + sequence,
          changed: point / 4,
          divergence: point === 0 ? -1 : 5 - point + sequence
        }),
        ...[2, 3].map(layer => effect({ ...at, layer, distance: point * layer }))
      ];
    })
  );

function writtenRun(request: Partial<GenerateRequest> = {}, row: Cells = {}): WrittenRun {
  const run = new WrittenRun();
  const kinds = [
    {
      name: 'noise1',
      title: 'Additive Gaussian noise',
      description: '',
      schema: { properties: { coefficient: { title: 'Coefficient' } } }
    }
  ];
  run.hello = {
    ...run.hello,
    sites: [{ name: 'system', title: 'Between layers', layers: [0, 1, 2, 3], kinds }]
  } as never;
  run.generated(1, { prompts: REQUEST.prompts, tokens: 3 });
  run.generated(2, { ...REQUEST, ...request }, { control: 1, ...row });
  run.text(1, CLEAN);
  run.text(2, PERTURBED);
  return run;
}

function positionsRun(): WrittenRun {
  const run = writtenRun();
  run.write('effects', ...positionRows());
  return run;
}

function sweepRun(
  settings: readonly (number | string)[] = [0.01, 0.1, 1],
  over: 'coefficient' | 'layers' = 'coefficient',
  row: Cells = {}
): WrittenRun {
  const run = writtenRun({ samples: 2, sweep: { over, values: [...settings] } }, row);
  run.write('effects', ...sweepRows(settings));
  return run;
}

async function content(run: WrittenRun, options: Partial<EffectsOptions> = {}): Promise<IContent> {
  const { loaded } = await loadModel(run, { view: 'effects', ...options });
  if (!('content' in loaded)) {
    throw new Error(`Expected a picture, got: ${loaded.state.sentence}`);
  }
  return loaded.content;
}

async function said(run: WrittenRun, options: Partial<EffectsOptions> = {}): Promise<string> {
  const { loaded } = await loadModel(run, { view: 'effects', ...options });
  return 'state' in loaded ? loaded.state.sentence : 'a picture';
}

const rows = ({ recipe }: Pick<IContent, 'recipe'>, dataset: string): readonly Row[] =>
  recipe?.datasets[dataset] ?? [];
const FRAME = { left: 0, top: 0, width: 100, height: 100, facet: {} };

describe('over positions', () => {
  it('are the KL divergence as bars, those where the best next token changes in a colour of their own, and where the texts part', async () => {
    const found = await content(positionsRun());
    const [stays, changes] = COLORS.categorical.light;
    expect(rows(found, 'bars')).toEqual(
      KL.map((value, x) => ({ x: x - 0.4, x2: x + 0.4, value, base: 0, color: CHANGED[x] ? changes : stays }))
    );
    expect(found.recipe?.params).toMatchObject({
      keyText: ['stays', 'is another one'],
      labels: { 0: 'The', 1: '␣capital', 4: '␣is' }
    });
    expect(rows(found, 'rules')).toMatchObject([{ x: 4, text: 'texts part' }]);
    expect(rows({ recipe: found.printed?.(true) ?? null }, 'bars')[0]?.['color']).toBe(
      COLORS.categorical.dark[0]
    );
  });

  it('are said: where most changes, what was perturbed, and what it is compared with', async () => {
    const { title, caption, summary } = await content(positionsRun());
    expect(title).toBe('Effects of a perturbation, generation 2, “The capital of”');
    expect(summary).toBe(
      'The best next token changes at 2 of 5 positions; KL is largest after position 3, “ France”, 2 nats. ' +
        'The written texts part at position 4: “ is”, perturbed “ was”.'
    );
    expect(caption.slice(0, 2)).toEqual([
      'Perturbed: Between layers: Additive Gaussian noise, coefficient 0.1, layers 2-3; seed 7.',
      'Clean control: generation 1.'
    ]);
    const same = writtenRun();
    same.write('effects', effect({ position: 0, kl: 0, changed: 0 }), effect({ position: -1 }));
    expect((await content(same)).summary).toContain('The written texts are the same.');
  });

  it('are changes alone, or the distance of each layer as a line', async () => {
    const changed = await content(positionsRun(), { measure: 'changed', transform: 'log' });
    expect(rows(changed, 'bars').map(({ x }) => x)).toEqual([2.6, 3.6]);
    const distance = await content(positionsRun(), { measure: 'distance' });
    expect(rows(distance, 'bars')).toEqual([]);
    expect(distance.recipe?.params['keyText']).toEqual(['layer 1', 'layer 2', 'layer 3']);
    expect(
      rows(distance, 'rows')
        .filter(({ line }) => line === 2)
        .map(({ value }) => value)
    ).toEqual([1, 2, 3, 4, 5].map(times => 0.1 * 3 * times));
  });

  it('stand on a logarithmic axis from the least one above 0', async () => {
    const run = positionsRun();
    run.write('effects', effect({ position: 5, kl: 0, changed: 0 }));
    const found = await content(run, { transform: 'log' });
    expect(found.recipe?.texts['yScale']).toBe('log');
    expect(rows(found, 'bars')).toHaveLength(5);
    expect(rows(found, 'bars')[0]?.['base']).toBeCloseTo(0.125 / 1.1);
  });

  it('answer pointer and keys with what both texts have next', async () => {
    const { model } = await loadModel(positionsRun(), { view: 'effects' });
    const mark = model.probe({ frame: FRAME, x: 3.3, y: 1, down: 0 });
    expect(mark).toEqual({ facet: null, x: [2.5, 3.5], y: null });
    expect(model.tipOf(mark as never)).toEqual({
      heading: 'position 3, “ France”',
      lines: [
        { name: 'KL divergence', value: '2 nats' },
        { name: 'best next token', value: 'is another one' },
        { name: 'clean text goes on', value: '“ is”' },
        { name: 'perturbed text goes on', value: '“ was”' }
      ]
    });
    expect(model.insight?.()).toEqual(mark);
    expect(model.move('ArrowLeft')).toMatchObject({ said: 'position 2, “ of”: 0.125 nats' });
    expect(model.move('copy')?.copy).toBe('0.125 nats');
    expect(model.pointedBy(mark as never)).toEqual({
      step: null,
      layer: null,
      generation: 2,
      sequence: 0,
      position: 3
    });
    // The clean text has the same position.
    const at = { layer: null, step: null, sequence: 0, position: 1 };
    expect([1, 2, 3].map(generation => model.marksOf({ ...at, generation }).marks.length)).toEqual([1, 1, 0]);
  });

  it('are drawn of a long text by the largest of those that share a bar', async () => {
    const run = writtenRun();
    run.write(
      'effects',
      ...Array.from({ length: 6000 }, (_, position) => effect({ position, kl: position % 5, changed: 0 }))
    );
    const found = await content(run);
    expect(sharing([-0.5, 5999.5])).toBe(5);
    expect(rows(found, 'bars')).toHaveLength(1200);
    expect(new Set(rows(found, 'bars').map(({ value }) => value))).toEqual(new Set([4]));
    expect(found.caption).toContain('Of every 5 positions the largest value is drawn: zoom in to see each.');
  });
});

describe('over layers', () => {
  it('are the distance of hidden states, the deepest layer on top', async () => {
    const found = await content(positionsRun(), { kind: 'layers' });
    const { width, height, data } = readPicture(rows(found, 'pictures')[0]?.['url']);
    expect([width, height]).toEqual([5, 3]);
    const scale = new ColorScale([0, 1.5]);
    const color = (column: number, row: number): string =>
      `#${[...data.subarray(4 * (row * width + column), 4 * (row * width + column) + 3)].map(each => each.toString(16).padStart(2, '0')).join('')}`;
    expect(color(4, 0)).toBe(scale.colorAt(1));
    expect(color(0, 2)).toBe(scale.colorAt(0));
    expect(color(1, 1)).toBe(scale.colorAt(scale.entry(0.4) / 255));
    expect(found.recipe?.params).toMatchObject({ rowText: ['3', '2', '1'] });
    expect(found.summary).toBe(
      'Hidden states move most in layer 3 at position 4, “ is”: 1.5 of their norm. The written texts part at position 4: “ is”, perturbed “ was”.'
    );
  });

  it('answer pointer and keys', async () => {
    const { model } = await loadModel(positionsRun(), { view: 'effects', kind: 'layers' });
    const mark = model.probe({ frame: FRAME, x: 1, y: 1.2, down: 0 });
    expect(model.tipOf(mark as never)).toMatchObject({
      heading: 'layer 2, position 1, “ capital”',
      lines: [{ name: 'relative distance', value: '0.4' }, { value: '“ of”' }, { value: '“ of”' }]
    });
    expect(model.pointedBy(mark as never)).toMatchObject({ layer: 2, position: 1, generation: 2 });
    expect(model.move('ArrowUp')?.said).toBe('layer 3, position 1, “ capital”: 0.6');
    expect(model.insight?.()).toEqual({ facet: null, x: [3.5, 4.5], y: [-0.5, 0.5] });
    expect(model.marksOf({ layer: 3, step: null }).marks).toEqual([
      { facet: null, x: [-0.5, 4.5], y: [-0.5, 0.5] }
    ]);
  });
});

describe('of a sweep', () => {
  it('are the mean over sequences with their range, at each setting', async () => {
    const found = await content(sweepRun(), { kind: 'sweep' });
    expect(rows(found, 'rows').map(({ x, value, alone }) => [x, value, alone])).toEqual([
      [0.01, 0.5, true],
      [0.1, 1.5, true],
      [1, 2.5, true]
    ]);
    expect(rows(found, 'band').map(({ low, high }) => [low, high])).toEqual([
      [0, 1],
      [1, 2],
      [2, 3]
    ]);
    expect(found.recipe?.params).toMatchObject({ labelAt: [0.01, 0.1, 1], labels: ['0.01', '0.1', '1'] });
    expect(found.summary).toBe(
      'Mean KL divergence is largest with coefficient 1: 2.5 nats (2 to 3 over 2 sequences).'
    );
    expect(found.title).toBe('Sweep of a perturbation, generation 2, “The capital of”');
  });

  it('stand at the logarithm of their setting where that is asked for; 0 has no place there', async () => {
    const found = await content(sweepRun([0, 0.01, 1]), { kind: 'sweep', transform: 'log' });
    expect(rows(found, 'rows').map(({ x }) => x)).toEqual([-2, 0]);
    expect(found.caption).toContain(
      'Settings of 0 or less have no place on a logarithmic axis, left out: 1.'
    );
  });

  it('stand side by side where settings are no numbers', async () => {
    const found = await content(sweepRun(['0', '1', '2-3'], 'layers'), { kind: 'sweep', transform: 'log' });
    expect(found.recipe?.params).toMatchObject({ labelAt: [0, 1, 2], labels: ['0', '1', '2-3'] });
    expect(found.recipe?.texts['xTitle']).toBe('layers that are perturbed');
    expect(found.summary).toContain('largest with layers 2-3');
  });

  it('are a line a layer of distances, and where the texts part of those that do', async () => {
    const distance = await content(sweepRun(), { kind: 'sweep', measure: 'distance' });
    expect(distance.recipe?.params['keyText']).toEqual(['layer 2', 'layer 3']);
    expect(rows(distance, 'band')).toEqual([]);
    const sweep = sweepOf(effectsOf(streamRows('effects', sweepRows([0.01, 0.1, 1]))));
    const [series] = sweepSeries(sweep, 'divergence');
    expect([...(series?.mean ?? [])]).toEqual([NaN, 4.5, 3.5]);
    const { summary } = await content(sweepRun(), { kind: 'sweep', measure: 'divergence' });
    expect(summary).toBe(
      'The texts part earliest with coefficient 1: position 3.5 on average, 2 of 2 texts differ.'
    );
  });

  it('answer pointer and keys', async () => {
    const { model } = await loadModel(sweepRun(), { view: 'effects', kind: 'sweep', measure: 'distance' });
    const mark = model.probe({ frame: FRAME, x: 0.12, y: 0, down: 0 });
    expect(mark?.x).toEqual([0.1, 0.1]);
    expect(model.tipOf(mark as never)).toMatchObject({
      heading: 'coefficient 0.1',
      lines: [
        { name: 'layer 2', value: '2 (2 to 2 over 2 sequences)' },
        { name: 'layer 3', value: '3 (3 to 3 over 2 sequences)' }
      ]
    });
    expect(model.move('ArrowRight')?.said).toBe('coefficient 1, layer 2: 4 (4 to 4 over 2 sequences)');
    expect(model.move('ArrowDown')?.said).toContain('coefficient 1, layer 3: 6');
    expect(model.pointedBy(mark as never)).toEqual({ step: null, layer: null });
  });
});

describe('what runs one point of a sweep alone', () => {
  const sweep = { over: 'coefficient', values: [0.01, 1] } as const;

  it('is its request with that setting, as code', () => {
    const strength = pointRequest({ ...REQUEST, sweep: { ...sweep, values: [0.01, 1] } }, '1', 1);
    expect(strength && requestCode(strength)).toBe(
      'run.generate("The capital of", tokens=3, perturb={"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 1}}, "layers": "2-3"}}, "seed": 7})'
    );
    const layers = pointRequest({ ...REQUEST, sweep: { over: 'layers', values: ['0'] } }, '0', NaN);
    expect(layers?.perturb?.sites['system']?.layers).toBe('0');
    const site = pointRequest({ ...REQUEST, sweep: { over: 'site', values: ['weight'] } }, 'weight', NaN);
    expect(Object.keys(site?.perturb?.sites ?? {})).toEqual(['weight']);
    expect(pointRequest(REQUEST, '1', 1)).toBeNull();
    expect(pointRequest(null, '1', 1)).toBeNull();
  });

  it('sets the rate of a bit flip', () => {
    const perturb = { sites: { weight: { kind: { name: 'bit_flip' } } } };
    const found = pointRequest(
      { prompts: ['a', 'b'], samples: 2, perturb, sweep: { over: 'coefficient', values: [0.5] } },
      '0.5',
      0.5
    );
    expect(found && requestCode(found)).toBe(
      'run.generate(["a", "b"], samples=2, perturb={"weight": {"kind": {"name": "bit_flip", "params": {"rate": 0.5}}}})'
    );
  });
});

describe('what is missing', () => {
  it('is said, with the line that gets it', async () => {
    const run = new WrittenRun();
    expect(await said(run)).toBe('No text was written under a perturbation. In a cell:');
    run.generated(1, { prompts: ['a'] });
    expect(await said(run, { generation: 1 })).toBe(
      'Generation 1 was written without a perturbation. In a cell:'
    );
    expect(await said(run, { generation: 9 })).toBe('There is no generation 9. In a cell:');
    expect(await said(writtenRun({}, { state: 'running' }))).toBe(
      'Generation 2 has not been compared with its clean control yet.'
    );
    expect(await said(writtenRun({}, { state: 'failed', message: 'Out of memory.' }))).toBe(
      'Generation 2 ended before it was compared. Out of memory.'
    );
    expect(await said(positionsRun(), { kind: 'sweep' })).toBe('Generation 2 is no sweep.');
    expect(await said(sweepRun())).toBe('Generation 2 is not compared by position: it is a sweep.');
    expect(await said(positionsRun(), { sequence: 3 })).toBe(
      'Nothing is here of what the perturbation of generation 2 changed.'
    );
  });

  it('is harmless where rows tell of no place', () => {
    const hostile = [
      { position: 1 << 30 },
      { position: -2 },
      { position: 0, layer: 1 << 20 },
      { position: 0, point: -7 },
      { position: 0, sequence: -1 }
    ];
    expect(effectsOf(streamRows('effects', hostile.map(effect))).rows).toEqual([]);
    expect(effectsOf({ length: 2, columns: {}, evictedRows: 3, sampledEvery: 1 })).toEqual({
      rows: [],
      control: NaN,
      evictedRows: 3
    });
  });
});

describe('the page', () => {
  const show = (run: WrittenRun, options: Partial<EffectsOptions>): Promise<IView> =>
    showView(run, { view: 'effects', ...options });
  const later = async (): Promise<void> => {
    await new Promise(done => setTimeout(done, 300));
    await settled();
  };
  const notes = (): string[] => texts('.jp-MegalensNote');

  it('says how far a sweep is, and ends it', async () => {
    const run = sweepRun([0.01, 0.1, 1], 'coefficient', { state: 'running' });
    const cancelled: number[] = [];
    Object.assign(run, { cancelGeneration: async (number: number) => void cancelled.push(number) });
    run.written.set(
      'effects',
      sweepRows([0.01, 0.1, 1]).filter(({ point }) => point === 0)
    );
    await show(run, { kind: 'sweep' });
    expect(notes()).toEqual(['1 of 3 points are done.Cancel']);
    run.write('effects', ...sweepRows([0.01, 0.1, 1]).filter(({ point }) => point === 1));
    await later();
    expect(notes()).toEqual(['2 of 3 points are done.Cancel']);
    document.querySelector<HTMLButtonElement>('.jp-MegalensNote button')?.click();
    expect(cancelled).toEqual([2]);
    run.generated(
      2,
      { ...REQUEST, samples: 2, sweep: { over: 'coefficient', values: [0.01, 0.1, 1] } },
      { state: 'cancelled', control: 1, time: 9 }
    );
    await later();
    expect(notes()).toEqual([]);
    expect(caption()).toContain('2 of 3 points are done. It was cancelled.');
  });

  it('shows the setting of a point that is chosen, with code that runs it', async () => {
    await show(sweepRun(), { kind: 'sweep' });
    key('ArrowLeft');
    key('Enter');
    await later();
    expect(notes()).toEqual([
      'coefficient 1: run.generate("The capital of", tokens=3, samples=2, perturb={"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 1}}, "layers": "2-3"}}, "seed": 7})Copy as code'
    ]);
    expect(document.querySelector('.jp-MegalensPinned')).not.toBeNull();
    key('Enter');
    await later();
    expect(notes()).toEqual([]);
  });

  checkRecipes(
    [
      ['positions', { view: 'effects' }, 1],
      ['distances', { view: 'effects', measure: 'distance' }, 1],
      ['layers', { view: 'effects', kind: 'layers' }, 1]
    ],
    positionsRun
  );

  it('draws another kind in the same chart, and takes another measure by its controls', async () => {
    const view = await show(positionsRun(), {});
    await update({ kind: 'layers' });
    expect(view.node.querySelectorAll('.jp-MegalensPlot image')).toHaveLength(1);
    await update({ kind: 'positions', measure: 'divergence' });
    expect(view.node.textContent).toContain('KL divergence (nats)');
  });
});
