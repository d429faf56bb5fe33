import { drawSVG, LIGHT_THEME } from '../../../../charts';
import { ProtocolError } from '../../../../protocol/protocol-error';
import type { GenerateRequest } from '../../../../protocol/messages.generated';
import type { TokensOptions } from '../../../../protocol/views.generated';
import { RunLink } from '../../../../store/run-link';
import type { IGenerationStart, IRunSource } from '../../../../store/source';
import { attentionRow } from '../../store/__tests__/written-text';
import { HELLO } from '../../../../store/__tests__/memory-run';
import { WrittenRun } from '../../../../store/__tests__/written-run';
import { readView } from '../../../../views/still';
import type { IView, IViewRuns } from '../../../../views/view';
import { layOut, shownText, adjacentToken } from '../../../../views/kits/text/text-layout';
import {
  clearPage,
  click,
  control,
  key,
  put,
  settled,
  showView,
  state,
  texts,
  update
} from '../../../../views/__tests__/page';
import { textRows, textRun, tokenRow } from './generated-text';

const SITES = [
  {
    name: 'calculation',
    title: 'MLP output',
    layers: [0, 1],
    kinds: [
      {
        name: 'noise',
        title: 'Noise',
        description: '',
        schema: {
          properties: {
            coefficient: { type: 'number', title: 'Coefficient', minimum: 0, maximum: 2, default: 0.5 },
            mode: { enum: ['add', 'scale'], title: 'Mode', default: 'add' }
          }
        }
      }
    ]
  },
  { name: 'weight', title: 'Weights', layers: [], kinds: [], reason: 'They are shared.' }
];

/** A run whose model may be asked, and whose views may tell one another. */
type AskedRun = WrittenRun & { -readonly [K in 'cancelGeneration' | 'generate' | 'link']?: IRunSource[K] };

let run: AskedRun;
let view: IView;
let asked: GenerateRequest[];
let ended: number[];

beforeEach(() => {
  run = textRun();
  asked = [];
  ended = [];
});

/** Let the model be asked; `answer` says what comes of it. */
function offer(
  answer: () => Promise<IGenerationStart> = () => Promise.resolve({ generation: 2, control: null })
): void {
  run.hello = {
    ...HELLO,
    controls: ['generate', 'perturb'],
    sites: SITES,
    generation: { prompts: 3, tokens: 100 }
  };
  run.generate = request => {
    asked.push(request);
    return answer();
  };
  run.cancelGeneration = generation => {
    ended.push(generation);
    return Promise.resolve();
  };
}

async function show(options: Partial<TokensOptions> = {}, runs?: IViewRuns): Promise<void> {
  view = await showView(run, { view: 'tokens', ...options }, runs && { runs });
  await settled();
}

const shown = (): string[] => texts('.jp-MegalensMoments-pane:not([hidden])');
const titles = (): string[] =>
  texts('.jp-MegalensMoments-pane:not([hidden]) .jp-MegalensView-title').filter(Boolean);

describe('a text', () => {
  it('is drawn token by token, and the most surprising one is said', async () => {
    await show();
    expect(titles()).toEqual(['Generation 1: 5 tokens, 10 tokens/s']);
    const [pane = ''] = shown();
    expect(pane).toContain('Most surprising: “ the” at position 5, 9.1 bits.');
    expect(pane).toContain('Text: Once upon a time⏎ the end');
    expect(pane).toContain('Tokens of the prompt are underlined.');
    expect(view.summary()).toContain('9.1 bits');
    // A box for each token, and two underlines.
    const drawn = document.querySelectorAll('.jp-MegalensStage')[0];
    expect(
      drawn?.querySelectorAll('.boxes_marks path, .concat_0_layer_0_marks path, .mark-rect path').length
    ).toBeGreaterThanOrEqual(7);
    expect([...(drawn?.querySelectorAll('.mark-text text') ?? [])].map(each => each.textContent)).toEqual(
      expect.arrayContaining(['Once', 'upon', 'a', 'time', '⏎', 'the', 'end'])
    );
  });

  it('is read with the arrows, token by token and line by line, and copied', async () => {
    await show();
    expect(key('ArrowRight')).toContain('“ end”, position 6, written by the model');
    expect(key('ArrowLeft')).toBe(
      '“ the”, position 5, written by the model, token id 105, probability 0.0018, after the filters 0.0018, surprise 9.12 bits, rank 153, entropy 1.5 nats'
    );
    expect(key('ArrowUp')).toContain(
      '“Once”, position 0, written by the prompt, token id 100, probability nothing predicts the first token'
    );
    expect(key('ArrowDown')).toContain('position 5');
    expect(key('Home')).toContain('position 0');
    expect(key('End')).toContain('position 6');
    const copied: string[] = [];
    Object.defineProperty(navigator, 'clipboard', {
      configurable: true,
      value: { writeText: (text: string) => Promise.resolve(void copied.push(text)) }
    });
    expect(key('c', { ctrlKey: true })).toBe('The text was copied.');
    await click('Copy text');
    expect(copied).toEqual(['Once upon a time\n the end', 'Once upon a time\n the end']);
  });

  it('has the same colours for a probability, its surprise, and a rank, and none where nothing predicts a token', async () => {
    const colorsOf = async (color: NonNullable<TokensOptions['color']>): Promise<unknown[]> => {
      const [still] = await readView(run, { view: 'tokens', color });
      return (still?.recipe?.datasets['boxes'] ?? []).map(each => each['color']);
    };
    const probability = await colorsOf('probability');
    const surprise = await colorsOf('surprise');
    const rank = await colorsOf('rank');
    // The first token has none; the one that was hardly expected is the darkest in each.
    expect(probability[0]).toBe('#ececec');
    for (const colors of [probability, surprise, rank]) {
      expect(colors[5]).toMatch(/^#4[45]0/);
    }
    expect(new Set(await colorsOf('none'))).toEqual(new Set(['#ececec']));
  });

  it('marks what is not finite, in the picture and in its key', async () => {
    run.write('tokens', tokenRow({ position: 7, piece: '!', probability: NaN }));
    const [still] = await readView(run, { view: 'tokens' });
    expect(still?.recipe?.datasets['boxes']?.[7]?.['color']).toBe('#ff2bd6');
    expect(still?.recipe?.params['legendText']).toContain('not finite');
    expect(still?.summary).toMatch(
      /^The probability is not finite first of “!” at position 7\. Most surprising: “ the” at position 5/
    );
  });

  it('is shown up to a position, with what came later pale, and followed again', async () => {
    run.link = new RunLink();
    await show();
    await put('position', '3');
    expect(view.options).toMatchObject({ position: 3 });
    expect(run.link.position).toEqual({ generation: 1, sequence: 0, position: 3 });
    const [pane = ''] = shown();
    expect(pane).toContain('Up to position 3; what came after it is pale.');
    expect(pane).toContain('Most surprising: “ a” at position 2, 0.32 bits.');
    control('position').querySelector('button')?.click();
    await settled();
    expect(view.options).toMatchObject({ position: null });
    expect(run.link.position).toBeNull();
  });

  it('moves the other views to a token that is clicked at, and goes where another view went', async () => {
    run.link = new RunLink();
    await show();
    key('ArrowRight');
    key('ArrowLeft');
    expect(key('p')).toBe('Position 5 pinned.');
    expect(run.link.position).toEqual({ generation: 1, sequence: 0, position: 5 });
    await settled();
    expect(titles()).toContain('Candidates at position 5');
    run.link.pinPosition({ generation: 1, sequence: 0, position: 1 });
    await settled();
    expect(texts('[data-control="position"] output')).toEqual(['position 1, “ upon”']);
    // A position of another text is none of this one.
    run.link.pinPosition({ generation: 8, sequence: 0, position: 2 });
    await settled();
    expect(texts('[data-control="position"] output')).toEqual(['position 6, “ end”']);
  });

  it('lights what a token looks at, as strongly as the mean of heads and layers does, or a layer alone', async () => {
    run.link = new RunLink();
    run.generated(1, { prompts: ['Once upon'], tokens: 5, attention: true }, { tokens: 5 });
    run.written.set(
      'tokens',
      (run.written.get('tokens') ?? []).map((row, at) => ({ ...row, tensor_step: 10, tensor_offset: at }))
    );
    // Of layer 0 head 0 looks at the first token alone and head 1 at all alike; layer 1 looks at the token itself.
    for (const layer of [0, 1]) {
      const pass = { step: 10, queries: 7, keys: 7, layer, heads: 2, padding: [0] };
      const share = (head: number, query: number, at: number): number =>
        layer === 1 ? Number(at === query) : head === 1 ? 1 / (query + 1) : Number(at === 0);
      run.add(attentionRow(pass, (_, head, query, at) => share(head, query, at)));
    }
    await show();
    const lights = (): number[] =>
      [...document.querySelectorAll<HTMLElement>('.jp-MegalensLinked')].map(each =>
        Number(each.style.opacity)
      );
    key('ArrowRight');
    await settled();
    key('Home');
    key('ArrowRight');
    expect(key('ArrowRight')).toContain(
      'entropy 1.5 nats, looks most at 2 “ a” 58.3 %, 0 “Once” 33.3 %, 1 “ upon” 8.33 %'
    );
    await settled();
    const strengths = [4 / 7, 1 / 7, 1].map(share => expect.closeTo(Math.sqrt(share), 5));
    expect(lights()).toEqual(strengths);
    // Another view points at layer 1: the token itself is marked, and lit.
    key('Escape');
    run.link.point({}, { step: null, layer: 1, generation: 1, sequence: 0, position: 3 });
    await settled();
    await new Promise<void>(done => setTimeout(done, 60));
    expect(lights()).toEqual([1, 1]);
  });

  it('says what a token could have been, before and after the filters', async () => {
    run.link = new RunLink();
    await show();
    run.link.pinPosition({ generation: 1, sequence: 0, position: 5 });
    await settled();
    const [, candidates = ''] = shown();
    expect(candidates).toContain(
      '“ the” was taken: probability 0.0018, rank 153. Most probable was “ a”, 0.5.'
    );
    expect(key('ArrowDown', {}, 1)).toBe('“ a”, probability 0.5, after the filters 0.75, rank 0');
    expect(key('ArrowDown', {}, 1)).toBe('“ it”, probability 0.25, after the filters 0, rank 1');
    // The one that was taken was not among the most probable.
    expect(key('ArrowDown', {}, 1)).toBe(
      '“ the”, probability 0.0018, after the filters 0.0018, rank 153, taken yes'
    );
  });

  it('of thousands of tokens is drawn in part, and says what is not in sight', async () => {
    const long = Array.from({ length: 2000 }, (_, at): [string, number] => [` word${at % 10}`, 0.5]);
    run.write('tokens', ...textRows(long, 1, { generation: 2 }));
    run.generated(2, { prompts: ['word'], tokens: 1999 });
    await show();
    const caption = (): string => texts('.jp-MegalensView-caption')[0] ?? '';
    // 640 pixels are 80 columns, 13 tokens of 6 each: 154 lines.
    expect(caption()).toContain('Lines 115 to 154 of 154: positions 1 482 to 1 999 of 2 000.');
    expect(texts('.jp-MegalensNote span')).toContain('114 lines before these.');
    await click('Show the lines before');
    expect(caption()).toContain('Lines 76 to 115 of 154');
    expect(texts('.jp-MegalensNote span')).toEqual(['75 lines before these.', '39 lines after these.']);
    await click('Show the lines after');
    expect(caption()).toContain('Lines 115 to 154 of 154');
    expect(
      document.querySelectorAll('.jp-MegalensStage')[0]?.querySelectorAll('.mark-text text').length
    ).toBeLessThan(700);
    key('ArrowRight');
    expect(key('Home')).toContain('position 0');
    await settled();
    expect(caption()).toContain('Lines 1 to 40 of 154');
  });

  it('names positions that are gone', async () => {
    run.written.set('tokens', (run.written.get('tokens') ?? []).slice(2));
    await show();
    expect(shown()[0]).toContain('Older rows given up to stay within memory: 2.');
  });
});

describe('beside another one', () => {
  /** The same prompt under noise: another word at position 3. */
  function perturbed(): void {
    const rows = textRows([['Once'], [' upon'], [' a'], [' hill'], ['.']], 2, { generation: 2 });
    rows.slice(3).forEach((row, at) => Object.assign(row, { id: 900 + at }));
    run.generated(
      2,
      {
        prompts: ['Once upon'],
        tokens: 5,
        perturb: { sites: { calculation: { kind: { name: 'noise', params: { coefficient: 0.1 } } } } }
      },
      { control: 1, tokens: 3 }
    );
    run.write('tokens', ...rows);
    run.hello = { ...HELLO, sites: SITES };
  }

  it('stands the clean control of what was written under a perturbation, the first difference marked in both', async () => {
    perturbed();
    await show();
    expect(titles().slice(0, 2)).toEqual([
      'Generation 2: 3 tokens · MLP output: Noise, coefficient 0.1',
      'Generation 1: 5 tokens, 10 tokens/s'
    ]);
    expect(texts('.jp-MegalensNote span')[0]).toBe('First difference at position 3: “ hill” and “ time”.');
    const stills = await readView(run, { view: 'tokens' });
    const orange = stills
      .slice(0, 2)
      .map(({ recipe }) => recipe?.datasets['outlines']?.filter(each => each['color'] === '#d55e00'));
    expect(orange.map(each => each?.length)).toEqual([1, 1]);
    expect(stills[0]?.caption).toContain('First difference at position 3: “ hill” and “ time”.');
  });

  it('stands any other generation, and nothing again', async () => {
    run.generated(2, { prompts: ['Once upon'] });
    run.write('tokens', ...textRows([['Once'], [' upon', 0.9]], 2, { generation: 2 }));
    await show({ generation: 1, other: 2 });
    expect(texts('.jp-MegalensNote span')[0]).toBe('First difference at position 2: “ a” and nothing.');
    await put('other', '');
    expect(view.options).toMatchObject({ other: null });
    expect(titles()).toHaveLength(1);
    await put('other', 'generation 2');
    expect(titles()).toContain('Generation 2: 0 tokens');
  });

  it('of a text that is written now no difference is made up', async () => {
    run.generated(2, { prompts: ['Once upon'] }, { state: 'running', tokens: 0 });
    run.write('tokens', ...textRows([['Once'], [' upon', 0.9]], 2, { generation: 2 }));
    await show({ generation: 1, other: 2 });
    expect(texts('.jp-MegalensNote span')[0]).toBe(
      'Both texts are the same, as far as they are written: 2 tokens.'
    );
  });

  it('stands a text of another run', async () => {
    const other = new WrittenRun(HELLO, 'r2');
    other.name = 'step 900';
    other.generated(1, { prompts: ['Once upon'] }, { tokens: 1 });
    other.write('tokens', ...textRows([['Once'], [' upon'], [' an']]));
    other.write('tokens', tokenRow({ position: 2, piece: ' an', id: 77 }));
    const runs: IViewRuns = {
      list: () =>
        Promise.resolve([
          { id: 'r1', name: 'gpt-demo' },
          { id: 'r2', name: 'step 900' }
        ]),
      acquire: id =>
        id === 'r2'
          ? Promise.resolve({ source: other, dispose: () => undefined })
          : Promise.reject(new Error('gone'))
    };
    await show({}, runs);
    await put('other', 'run r2');
    expect(view.options).toMatchObject({ other: null, other_run: 'r2' });
    expect(titles()).toContain('Generation 1 of step 900: 1 tokens');
    expect(texts('.jp-MegalensNote span')[0]).toBe('First difference at position 2: “ a” and “ an”.');
    await update({ other_run: 'r9' });
    expect(texts('.jp-MegalensNote span')[0]).toBe('r9 has no generated text, or cannot be opened.');
    await click('Show nothing beside it');
    expect(view.options).toMatchObject({ other_run: null });
  });
});

describe('asking', () => {
  it('is offered where the model can be asked, folds away, and is no part of a picture', async () => {
    await show();
    expect(document.querySelector('[data-control="generate"]')).toBeNull();
    clearPage();
    offer();
    await show();
    expect(control('generate.prompt.0')).toBeTruthy();
    control('generate').click();
    expect(document.querySelector('[data-control="generate.prompt.0"]')).toBeNull();
    expect(await readView(run, { view: 'tokens' })).toHaveLength(1);
    expect(await view.toSVG()).not.toContain('textarea');
  });

  it('sends what is filled in, and shows what is written', async () => {
    offer();
    await show({ generation: 1 });
    await put('generate.prompt.0', 'Once\nupon');
    await click('Add a prompt');
    await put('generate.prompt.1', 'Twice');
    await put('generate.tokens', '900');
    await put('generate.temperature', '0.75');
    await put('generate.top_k', '40');
    await put('generate.top_p', '0.9');
    await put('generate.seed', '7');
    await put('generate.samples', '2');
    await put('generate.stop', '\\n\\n');
    await put('generate.attention', 'on');
    await put('generate.lens', '5');
    await put('perturb.site', 'calculation');
    await put('perturb.param.coefficient', '0.25');
    await put('perturb.param.mode', '"scale"');
    await put('perturb.layers', '0-1');
    control('generate.go').click();
    await settled();
    expect(asked).toEqual([
      {
        prompts: ['Once\nupon', 'Twice'],
        // No more than the model writes.
        tokens: 100,
        temperature: 0.75,
        top_k: 40,
        top_p: 0.9,
        seed: 7,
        samples: 2,
        stop: ['\n\n'],
        attention: true,
        lens: 5,
        perturb: {
          sites: {
            calculation: {
              kind: { name: 'noise', params: { coefficient: 0.25, mode: 'scale' } },
              layers: '0-1'
            }
          },
          seed: 0
        }
      }
    ]);
    expect(view.options).toMatchObject({ generation: null });
    await click('Remove');
    expect(control('generate.prompt.0').querySelector('textarea')?.value).toBe('Twice');
  });

  it('sweeps, keeps other candidates and stops at tokens where that is wanted, and says it as code', async () => {
    offer();
    const copied = jest.fn().mockResolvedValue(undefined);
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: copied }, configurable: true });
    await show();
    for (const id of ['generate.candidates', 'generate.stop_tokens', 'sweep.over']) {
      expect(document.querySelector(`[data-control="${id}"]`)).toBeNull();
    }
    await put('generate.prompt.0', 'a');
    await click('More');
    await put('generate.candidates', '0');
    await put('generate.stop_tokens', '2, 50256');
    await put('perturb.site', 'calculation');
    await put('sweep.over', 'layers');
    await put('sweep.values', '0 1 0-1,3');
    control('generate.go').click();
    await settled();
    expect(asked).toMatchObject([
      { candidates: 0, stop_tokens: [2, 50256], sweep: { over: 'layers', values: ['0', '1', '0-1,3'] } }
    ]);
    await put('sweep.over', 'coefficient');
    control('generate.copy').click();
    await settled();
    expect(copied.mock.lastCall?.[0]).toMatch(
      /^run\.generate\("a", stop_tokens=\[2, 50256\], candidates=0, perturb=\{.*\}, sweep=\{"coefficient": \[0\.01, 0\.1, 1\]\}\)$/
    );
    await put('sweep.over', 'site');
    expect(control('sweep.values').querySelector('input')?.value).toBe('calculation');
    // Without a perturbation there is nothing to repeat.
    await put('perturb.site', '');
    control('generate.go').click();
    await settled();
    expect(asked[1]).not.toHaveProperty('sweep');
  });

  it.each([
    ['generate.stop_tokens', '2, end', 'Must be whole numbers from 0, such as 2, 50256, got 2, end.'],
    ['generate.stop_tokens', '1 '.repeat(65), 'Must be at most 64 token ids, got 65.'],
    ['sweep.values', '', 'Must be 1 to 200 settings, got 0.'],
    ['sweep.values', '0.1, much', 'Must be numbers such as 0.01, 0.1, 1, got 0.1, much.']
  ])('says at %s what is wrong with %j, and asks nothing', async (id, value, fault) => {
    offer();
    await show();
    await put('generate.prompt.0', 'a');
    await click('More');
    await put('perturb.site', 'calculation');
    await put('sweep.over', 'coefficient');
    await put(id, value);
    expect(texts(`[data-control="${id}.fault"]`)).toEqual([fault]);
    control('generate.go').click();
    await settled();
    expect(asked).toEqual([]);
    expect(texts('[data-control="generate.status"]')).toEqual(['Nothing was asked: see the field at fault.']);
    expect(control<HTMLButtonElement>('generate.copy').disabled).toBe(true);
  });

  it('says of a setting what the model said against it', async () => {
    const fault = new ProtocolError('bad-parameter', 'coefficient must be 0 to 2, got 9.', {
      field: 'request.sweep.values.1'
    });
    offer(() => Promise.reject(fault));
    await show();
    await put('generate.prompt.0', 'a');
    await put('perturb.site', 'calculation');
    await put('sweep.over', 'coefficient');
    await put('sweep.values', '1, 9');
    control('generate.go').click();
    await settled();
    expect(texts('[data-control="sweep.values.fault"]')).toEqual(['coefficient must be 0 to 2, got 9.']);
  });

  it('tells the place in the queue, then how far it is and how fast, and can be taken back', async () => {
    offer();
    await show();
    run.generated(2, { prompts: ['x'], tokens: 64 }, { state: 'queued', place: 2, sequences: 0 });
    await settled();
    expect(state()).toBe('Generation 2 waits, place 2 in the queue.');
    expect(texts('[data-control="generate.status"]')).toEqual(['Generation 2: waits, place 2 in the queue']);
    run.generated(2, { prompts: ['x'], tokens: 64 }, { state: 'running', tokens: 12, seconds: 0.4, time: 9 });
    run.write('tokens', ...textRows([['x'], ['y']], 1, { generation: 2 }));
    await settled();
    expect(titles()[0]).toBe('Generation 2: 12 of 64 tokens, 30 tokens/s');
    expect(texts('[data-control="generate.status"]')).toEqual(['Generation 2: 12 of 64 tokens, 30 tokens/s']);
    control('generate.cancel').click();
    await settled();
    expect(ended).toEqual([2]);
  });

  it('says while a prompt is typed that it may be longer than the model reads', async () => {
    offer();
    run.hello = { ...run.hello!, generation: { prompts: 3, tokens: 100, context: 70 } };
    await show();
    await put('generate.prompt.0', 'a prompt');
    expect(texts('[data-control="generate.status"]')).toEqual([
      'The model reads 70 tokens at once: a prompt of up to 8 and 64 to write may be too many.'
    ]);
    await put('generate.prompt.0', 'short');
    expect(texts('[data-control="generate.status"]')).toEqual(['']);
    const input = control('generate.tokens').querySelector('input');
    expect(input?.max).toBe('70');
  });

  it('says what was wrong at the field at fault, until it is changed', async () => {
    const fault = new ProtocolError('bad-parameter', 'Prompt 1 must be 1 to 512 tokens, got 600.', {
      field: 'request.prompts.1'
    });
    offer(() => Promise.reject(fault));
    await show();
    control('generate.go').click();
    await settled();
    expect(texts('[data-control="generate.prompt.0.fault"]')).toEqual([
      'Write a prompt, or take this one away.'
    ]);
    expect(asked).toEqual([]);
    await click('Add a prompt');
    await put('generate.prompt.0', 'a');
    await put('generate.prompt.1', 'b');
    control('generate.go').click();
    await settled();
    expect(texts('[data-control="generate.prompt.1.fault"]')).toEqual([
      'Prompt 1 must be 1 to 512 tokens, got 600.'
    ]);
    expect(control('generate.prompt.1').querySelector('textarea')?.getAttribute('aria-invalid')).toBe('true');
    await put('generate.seed', '3');
    expect(document.querySelector('[data-control="generate.prompt.1.fault"]')).toBeNull();
  });

  it('says a refusal that is of no field, and one that is of a parameter', async () => {
    const errors = [
      new ProtocolError('no-producer', 'No process that could write text is attached.'),
      new ProtocolError('bad-parameter', 'coefficient must be 0 to 2, got 9.', {
        field: 'request.perturb.sites.calculation.kind.params.coefficient'
      })
    ];
    offer(() => Promise.reject(errors.shift() ?? new Error('none')));
    await show();
    await put('generate.prompt.0', 'a');
    control('generate.go').click();
    await settled();
    expect(texts('[data-control="generate.status"]')).toEqual([
      'No process that could write text is attached.'
    ]);
    await put('perturb.site', 'calculation');
    control('generate.go').click();
    await settled();
    expect(texts('[data-control="perturb.param.coefficient.fault"]')).toEqual([
      'coefficient must be 0 to 2, got 9.'
    ]);
  });

  it('leaves out what the model has not', async () => {
    offer();
    run.hello = {
      ...HELLO,
      controls: ['generate'],
      sites: SITES,
      generation: { prompts: 1, tokens: 8, no_attention: 'It has none.', no_lens: 'It has none.' }
    };
    await show();
    for (const id of ['generate.attention', 'generate.lens', 'perturb.site']) {
      expect(document.querySelector(`[data-control="${id}"]`)).toBeNull();
    }
    expect(control<HTMLButtonElement>('generate.add').disabled).toBe(true);
  });
});

describe('where there is nothing to show', () => {
  it('it says how a text is written: by the form, or in a cell', async () => {
    run = new WrittenRun(HELLO);
    await show();
    expect(state()).toBe('Nothing was generated, and this run takes no prompts. In a cell:');
    expect(texts('.jp-MegalensState pre')).toEqual(['lab = megalens.serve(model, tokenizer)']);
    clearPage();
    offer();
    await show();
    expect(state()).toBe('Nothing was generated yet. Write a prompt above, or in a cell:');
  });

  it.each([
    [
      'failed',
      { state: 'failed', message: 'Out of memory at position 40.' },
      'Generation 2 failed: Out of memory at position 40.'
    ],
    ['cancelled', { state: 'cancelled' }, 'Generation 2 was cancelled before anything was written.'],
    [
      'gone',
      { tokens: 12 },
      'The tokens of generation 2 are not here: they were given up to stay within memory, or this file does not hold them.'
    ],
    ['running', { state: 'running' }, 'Generation 2 reads its prompts.']
  ])('it says that a generation is %s', async (_, row, sentence) => {
    run.generated(2, { prompts: ['x'] }, row);
    await show();
    expect(state()).toBe(sentence);
  });

  it('it says that there is no such generation or sequence, and shows one that is there', async () => {
    await show({ generation: 9 });
    expect(state()).toBe('There is no generation 9. The newest is 1.');
    await click('Show the newest');
    expect(titles()[0]).toContain('Generation 1');
    await update({ sequence: 3 });
    expect(state()).toBe('Generation 1 has no sequence 3: it has 1, counted from 0.');
    await click('Show sequence 0');
    expect(titles()[0]).toContain('Generation 1');
  });

  it('it says why a text that was begun failed', async () => {
    run.generated(
      1,
      { prompts: ['Once upon'] },
      { state: 'failed', tokens: 5, time: 9, message: 'Out of memory.' }
    );
    await show();
    expect(shown()[0]).toContain('It failed: Out of memory.');
  });
});

describe('a still picture', () => {
  it('is drawn from what the page draws', async () => {
    await show();
    const [still] = await readView(run, { view: 'tokens' }, { width: 640 });
    const svg = await view.toSVG();
    const drawn = await drawSVG(still?.recipe as never, { theme: LIGHT_THEME });
    const words = (text: string): string[] => text.match(/>[^<>\n]+<\/text>/g) ?? [];
    expect(words(drawn).length).toBeGreaterThan(10);
    expect(words(svg)).toEqual(expect.arrayContaining(words(drawn)));
    expect(still?.summary).toBe(view.summary().trim());
  });

  it('has colours of its own on a dark page', async () => {
    const [still] = await readView(run, { view: 'tokens' });
    const [light, dark] = [still?.recipe, still?.inDark?.()].map(
      each => each?.datasets['boxes']?.[0]?.['color']
    );
    expect([light, dark]).toEqual(['#ececec', '#2c2c2c']);
  });
});

describe('the layout', () => {
  const token = (piece: string, text = piece): { piece: string; text: string } => ({ piece, text });
  const lines = (pieces: string[], columns: number): string[] => {
    const { boxes } = layOut(
      pieces.map(each => token(each)),
      columns
    );
    return boxes.reduce<string[]>((found, { line, text }) => {
      found[line] = (found[line] ?? '') + text.replace(/\u00a0/g, ' ');
      return found;
    }, []);
  };

  it('begins a line for a token that has no room, and divides one that is longer than a line', () => {
    expect(lines(['abc', ' de', 'fgh', 'ijklmnopq'], 6)).toEqual(['abc de', 'fgh', 'ijklmn', 'opq']);
  });

  it('shows line breaks and begins a line after each', () => {
    expect(lines(['a\n\nb', '\r\n', 'c'], 20)).toEqual(['a⏎', '⏎', 'b␍⏎', 'c']);
  });

  it('gives East Asian letters and pictures two columns', () => {
    const { boxes } = layOut([token('漢字'), token('🦊'), token('a')], 20);
    expect(boxes.map(({ x, x2 }) => [x, x2])).toEqual([
      [0, 4],
      [4, 6],
      [6, 7]
    ]);
  });

  it('makes everything visible and nothing harmful', () => {
    expect(lines(['\u0007', '\u202e', '\t', '\u200b', '\u0301'], 40).join('')).toBe(
      '␇��⇥��◌́'.replace('��⇥��', '�⇥�')
    );
    expect(shownText(token('<0xF0>', ''))).toBe('⋯');
    expect(shownText(token('<0xA6>', '🦊'))).toBe('🦊');
    expect(shownText(token('<|end|>', ''))).toBe('<|end|>');
    expect(shownText(token('', ''))).toBe('∅');
  });

  it('finds the token above and below', () => {
    const layout = layOut(
      ['aaaa', 'bbbb', 'cccc', 'dddd'].map(each => token(each)),
      8
    );
    expect(adjacentToken(layout, 1, 1)).toBe(3);
    expect(adjacentToken(layout, 2, -1)).toBe(0);
    expect(adjacentToken(layout, 0, -1)).toBe(0);
  });
});
