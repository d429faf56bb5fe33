import type { ViewOptions } from '../../protocol/views.generated';
import { toCode } from '../code';
import type { IView } from '../view';
import { HELLO, MemoryRun } from '../../store/__tests__/memory-run';
import { caption, clearPage, key, put, showView, state, texts, title } from './page';

let run: MemoryRun;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
});

async function show(options: ViewOptions): Promise<IView> {
  clearPage();
  view = await showView(run, options);
  return view;
}

const flat = (value: number): Float32Array => new Float32Array(6).fill(value);
const HEATMAP: ViewOptions = { view: 'heatmap', flag: 'MLP1_mat_mul', layers: 'all' };
const TREND: ViewOptions = { view: 'trend', flag: 'MLP1_mat_mul', statistic: 'mean' };

describe('ranks and passes', () => {
  const layout = {
    world_size: 4,
    tp: 1,
    pp: 2,
    dp: 2,
    ranks: [0, 1, 2, 3].map(rank => ({ rank, tp: 0, pp: rank % 2, dp: Math.floor(rank / 2) }))
  };
  beforeEach(() => {
    run.hello = { ...HELLO, layout };
    for (const rank of [3, 1, 2, 0]) {
      const layer = 1 + (rank % 2);
      run.add({ rank, layer, values: flat(rank + 1) });
      run.add({ rank, layer, pass: 'backward', values: flat(-rank - 1) });
    }
  });

  it('takes of each layer the lowest rank, so that replicas do not mix, and says so', async () => {
    await show(HEATMAP);
    expect(view.summary()).toContain('values run from 1 to 2');
    expect(caption()).toContain('From ranks 0 and 1: of each layer the replica of the lowest rank.');
    await show(TREND);
    expect(key('End')).toBe('step 1, layer 1: mean 1');
  });

  it('shows one rank when it is chosen', async () => {
    await show(HEATMAP);
    await put('rank', '3');
    expect(view.options).toMatchObject({ rank: 3 });
    expect(view.summary()).toContain('values run from 4 to 4');
    expect(caption()).toContain('Replica of rank 3 (pp 1, dp 1).');
  });

  it('shows gradients as what they are', async () => {
    await show(TREND);
    await put('pass', 'backward');
    expect(title()).toContain('Gradient of MLP1 output, mean of layers 1 and 2');
    expect(toCode(view.options as ViewOptions)).toBe(
      'run.trend("MLP1_mat_mul", statistic="mean", pass_="backward")'
    );
  });

  it('offers neither while there is one rank and one pass', async () => {
    run.rows = run.rows.filter(row => row.rank === 0 && row.pass === 'forward');
    await show(HEATMAP);
    expect(texts('[data-control="rank"], [data-control="pass"]')).toEqual([]);
    expect(caption()).not.toContain('rank');
  });

  it('waits with a new step until the slower stages have sent it, too', async () => {
    run.add({ rank: 0, layer: 1, step: 2 });
    await show(HEATMAP);
    expect(title()).toContain('layers 1 and 2, step 1');
    run.add({ rank: 1, layer: 2, step: 2 });
    await view.settled();
    expect(title()).toContain('layers 1 and 2, step 2');
    await show({ ...HEATMAP, layers: '1' });
    expect(title()).toContain('step 2');
  });

  it('offers to trace gradients where there are none', async () => {
    run.rows = run.rows.filter(row => row.pass === 'forward');
    await show({ ...TREND, pass: 'backward' });
    expect(state()).toBe('Gradient of MLP1 output is not traced.');
    document.querySelector<HTMLButtonElement>('.jp-MegalensState button')?.click();
    await new Promise<void>(done => setTimeout(done));
    expect(run.patches).toEqual([
      { flags: { MLP1_mat_mul: { compressor: { name: 'Tile' }, passes: ['forward', 'backward'] } } }
    ]);
  });
});

describe('the error of the compressor', () => {
  it('is stated for the drawn tensor, or with the step at which it was measured last', async () => {
    run.add({ step: 1, compressionError: 0.616 }, { step: 2, compressionError: 0.5, layer: 2 }, { step: 3 });
    await show({ ...HEATMAP, layers: '0', step: 1 });
    expect(caption()).toContain('Lost to the compressor: 62 % of the tensor’s rms.');
    await show({ ...HEATMAP, layers: '0' });
    expect(caption()).toContain('Lost to the compressor: 62 % of the tensor’s rms, as measured at step 1.');
    await show({ ...HEATMAP, layers: '2' });
    expect(caption()).toContain('50 % of the tensor’s rms.');
  });

  it('is not stated where it was never measured, or for another compressor', async () => {
    run.add({ step: 1, compressionError: 0.5, compressor: 'NoOp()' }, { step: 2 });
    await show(HEATMAP);
    expect(caption()).not.toContain('Lost');
    run.add({ step: 3, compressor: 'NoOp()', compressionError: 0 });
    await view.settled();
    expect(caption()).toContain('The compressor kept the whole of the tensor.');
  });
});

it.each<[NonNullable<typeof HELLO.origin>, string]>([
  [{ kind: 'foreign', steps: 'inferred' }, 'Steps inferred: the foreign hub sends none.'],
  [{ kind: 'replay', name: 'tp2', steps: 'counted', speed: 4 }, 'Replay of tp2 at 4 × its speed.']
])('says in every view where its rows come from: %j', async (origin, says) => {
  run.hello = { ...HELLO, origin };
  run.units = { loss: 'nats' };
  run.numbers = [{ step: 1, name: 'loss', value: 1 }];
  run.add({});
  for (const options of [HEATMAP, TREND, { view: 'scalars' } as const]) {
    await show(options);
    expect(caption()).toContain(says);
  }
});

describe('parts of tensors in a trend', () => {
  // Two vectors at three positions.
  const projection = (step: number): object => ({
    step,
    compressor: "Projection(vectors='persona.safetensors')",
    values: Float32Array.from([1, 10, 2, 20, 3, 30], value => value * step)
  });
  beforeEach(() => run.add(projection(1), projection(2)));

  it('takes one vector of a projection, and the positions that are chosen', async () => {
    await show(TREND);
    expect(view.summary()).toContain('rose from 2 to 4');
    await put('vector', '1');
    expect(view.summary()).toContain('rose from 20 to 40');
    await put('positions', '1-2');
    expect(view.summary()).toContain('rose from 25 to 50');
    expect(caption()).toContain('Vector 1 of 2, counted from 0. Positions 1 and 2 of 3, counted from 0.');
    await put('positions', '7');
    expect(state()).toBe('There is no position 7; they go from 0 to 2.');
  });

  it('draws a band about the mean and says what it is worth', async () => {
    await show({ ...TREND, statistic: 'rms' });
    await put('interval', 'ci95');
    expect(view.options).toMatchObject({ statistic: 'kept_mean', interval: 'ci95' });
    expect(caption()).toContain('(n = 3). Neighbouring positions are not independent');
    expect(document.querySelectorAll('.jp-MegalensPlot .mark-area path')).toHaveLength(1);
    await put('statistic', 'kept_max');
    expect(caption()).toContain('Bands are about the lines of a mean');
  });
});
