import { PIPELINE, type IPipelineSteps } from '../../client/pipeline-api';
import type { InstrumentInfo } from '../../../../protocol/messages.generated';
import type { PipelineOptions } from '../../../../protocol/views.generated';
import { HELLO, MemoryRun } from '../../../../store/__tests__/memory-run';
import { readView } from '../../../../views/still';
import type { IView } from '../../../../views/view';
import { measuredPipeline, measuredWhole } from './measured-pipeline';
import { click, control, plain, put, showView, texts, update } from '../../../../views/__tests__/page';

let run: MemoryRun;
let steps: IPipelineSteps | null;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
  steps = null;
  run.answerTo(PIPELINE, () => Promise.resolve(steps));
});

async function show(options: Partial<PipelineOptions> = {}): Promise<void> {
  view = await showView(run, { view: 'pipeline', ...options });
}

const said = (): string => plain(document.body.textContent ?? '');
const titles = (): string[] => texts('.jp-MegalensView-title');
const bars = (): number => document.querySelectorAll('.pieces_marks path, .pieces_marks rect').length;

it('plans a schedule from typed times: 1F1B of 4 stages and 8 micro-batches takes (8 + 3) × 3 ms', async () => {
  await show({ schedule: '1f1b', kind: 'plan' });
  expect(titles()).toEqual(['1F1B: 4 stages, 8 micro-batches, 33 ms a step']);
  // Three of eleven parts of the step: (P - 1) / (M + P - 1).
  expect(said()).toContain('stages are idle for 27.3 % of it');
  expect(said()).toContain('It cannot deadlock: its 64 operations');
  expect(bars()).toBe(64);
});

it('says the steady period where stages begin and end a step one after the other', async () => {
  await show({ schedule: 'zb_h2', kind: 'plan' });
  // Every stage is busy for 8 × 3 ms from its first operation until its last.
  expect(said()).toContain('A step takes 27 ms, stages are idle for 11.1 % of it.');
  expect(said()).toContain(
    'Where no stage waits for the others at a step’s end, one follows every 24 ms, and 0 % of that is idle.'
  );
  await update({ schedule: '1f1b' });
  expect(said()).not.toContain('one follows every');
  await update({ kind: 'schedules' });
  expect(said()).toContain('ZB-H1 · 27 ms a step · bubble 11.1 %');
  expect(said()).not.toContain('ZB-H1 · 27 ms a step · bubble 11.1 % · steady');
  expect(said()).toContain('ZB-H2 · 27 ms a step · bubble 11.1 % · steady 24 ms, bubble 0 %');
});

it('says why of two schedules whose steps are as long one comes first', async () => {
  await show({ kind: 'schedules', stages: 2, micro_batches: 5, activation_mb: 100 });
  expect(said()).toContain(
    'ZB-V is the fastest with 15.5 ms, GPipe the slowest with 18 ms. A step of DualPipeV takes as long; it comes after, because its steady period is 15.5 ms, not 15 ms.'
  );
  expect(said().indexOf('ZB-H2 ·')).toBeLessThan(said().indexOf('ZB-H1 ·'));
  await update({ stages: 1, micro_batches: 2, kind: 'plan' });
  expect(said()).toMatch(
    /1F1B is the fastest of \d+ schedules. A step of MegaDPP takes as long and holds 50 MB more\./
  );
});

it('shows every schedule with its time, bubble and memory, the fastest first, and goes to the one that is clicked', async () => {
  await show({ kind: 'schedules', activation_mb: 100 });
  expect(titles()).toEqual(['12 schedules side by side']);
  expect(said()).toContain('1F1B · 33 ms a step · bubble 27.3 % · 400 MB');
  expect(said()).toContain('GPipe · 33 ms a step · bubble 27.3 % · 800 MB');
  expect(said()).toMatch(/is the fastest with 2\d(\.\d)? ms/);
});

it('sorts and names schedules by the number at which their bars end, with jitter too', async () => {
  const few = { view: 'pipeline', stages: 2, micro_batches: 4 } as const;
  for (const jitter of [0, 20]) {
    const [still] = await readView(run, { ...few, kind: 'schedules', jitter });
    const { headings = [], ends = [], pieces = [] } = still?.recipe?.datasets ?? {};
    const told = headings.map(({ text }) => Number(/· (\S+)\sms a step/.exec(plain(String(text)))?.[1]));
    expect(told).toHaveLength(ends.length);
    expect(told).toEqual([...told].sort((a, b) => a - b));
    ends.forEach(({ x, y, y2 }, at) => {
      expect(told[at]).toBe(Number(Number(x).toPrecision(4)));
      const inside = pieces.filter(
        piece => Number(piece['y']) > Number(y) && Number(piece['y']) < Number(y2)
      );
      const last = Math.max(...inside.map(piece => Number(piece['x2'])));
      // The stage that is done last on average, and the last of each step.
      expect(last / Number(x)).toBeGreaterThan(jitter === 0 ? 0.9999 : 0.95);
      expect(last).toBeLessThanOrEqual(Number(x) + 1e-9);
    });
  }
  const [plan] = await readView(run, { ...few, kind: 'plan', schedule: '1f1b', jitter: 20 });
  const [step] = /\d\S* ms/.exec(plain(plan?.title ?? '').split('micro-batches, ')[1] ?? '') ?? [''];
  // Without jitter it takes (4 + 1) × 3 ms.
  expect(parseFloat(step)).toBeGreaterThan(15);
  expect(plain(plan?.summary ?? '')).toContain(`A step takes ${step}, `);
  expect(Number(plan?.recipe?.datasets['ends']?.[0]?.['x'])).toBeCloseTo(parseFloat(step), 2);
  expect(plan?.caption.join(' ')).toContain('Drawn is the mean of steps with their jitter');
});

it('lists what needs too much memory last, by the same number, and says so', async () => {
  const [still] = await readView(run, {
    view: 'pipeline',
    kind: 'schedules',
    activation_mb: 100,
    memory_gb: 0.5
  });
  const told = (still?.recipe?.datasets['headings'] ?? []).map(({ text }) => plain(String(text)));
  const over = told.map(text => text.includes('too much'));
  expect(over).toEqual([...over].sort((a, b) => Number(a) - Number(b)));
  for (const part of [true, false]) {
    const times = told
      .filter((_, at) => over[at] === part)
      .map(text => Number(/· (\S+) ms a step/.exec(text)?.[1]));
    expect(times.length).toBeGreaterThan(1);
    expect(times).toEqual([...times].sort((a, b) => a - b));
  }
  expect(still?.caption).toContain('What needs more memory than a stage may hold comes last.');
});

it('leaves out schedules that do not take these numbers, with the reason', async () => {
  await show({ kind: 'schedules', stages: 3, micro_batches: 4 });
  expect(said()).not.toContain('DualPipe ·');
  await update({ schedule: 'dualpipe', kind: 'plan' });
  expect(said()).toContain('DualPipe must have an even number of stages, got 3. Try DualPipeV.');
});

it('draws memory once sizes are set, and says which stage holds most', async () => {
  await show({ schedule: '1f1b', micro_batches: 4, kind: 'memory' });
  expect(titles()).not.toContain('Memory of stages, 1F1B');
  await update({ activation_mb: 100, weight_mb: 500 });
  expect(titles()).toContain('Memory of stages, 1F1B');
  // The first stage holds as many activations as there are stages: 4 × 100 MB and its weights.
  expect(said()).toContain('Stage 0 holds most: 900 MB.');
});

it('says that no schedule stays within the memory, and what to do', async () => {
  await show({ kind: 'plan', stages: 2, micro_batches: 4, weight_mb: 5000, memory_gb: 4 });
  expect(said()).toContain('No schedule stays within this memory.');
  await click('Show the best');
  expect(bars()).toBeGreaterThan(0);
});

it('lays the last measured step over the plan of the measured order, and says why stages departed from it', async () => {
  steps = measuredPipeline();
  await show({ schedule: 'measured', kind: 'plan' });
  expect(titles()).toEqual(['1F1B as measured: 2 stages, 2 micro-batches, 90 ms a step']);
  expect(said()).toContain('Stage 1 ended 6 ms later than planned: compute +6 ms.');
  expect(said()).toContain('Stage 0 ended 6 ms later than planned: waiting +6 ms, most for stage 1.');
  expect(said()).toContain('Times are the medians of 3 measured steps');
  expect(said()).toContain('Under each stage: step 9 as measured, 96 ms.');
  expect(bars()).toBe(16);
  await click('Hide what was measured');
  expect(bars()).toBe(8);
});

it('says that times of a device are those of its host', async () => {
  steps = measuredPipeline();
  const hello = run.hello ?? HELLO;
  run.hello = { ...hello, model: { name: 'GPT', layers: 4, device: 'cuda:0' } };
  await show({ schedule: 'measured', kind: 'plan' });
  expect(said()).toContain('Passes on cuda are timed by the host until their work is queued');
});

it('names a faster schedule than the measured one, by how much, and shows it', async () => {
  steps = measuredPipeline();
  await show({ schedule: 'measured', kind: 'plan' });
  const percent = Number(/Switch to .*: (-\d+(?:\.\d+)?) % ± /.exec(said())?.[1]);
  const milliseconds = (): number => Number(/([\d.]+) ms a step/.exec(titles()[0] ?? '')?.[1]);
  const measured = milliseconds();
  await click('Show it');
  expect(milliseconds()).toBeLessThan(measured);
  expect(percent).toBeCloseTo(100 * (milliseconds() / measured - 1), 1);
});

it('cuts a model that runs as one process into equal stages', async () => {
  steps = measuredWhole();
  await show({ schedule: 'gpipe', kind: 'plan', stages: 4, micro_batches: 4 });
  // A stage takes a quarter: 3 ms forward, 6 ms backward.
  expect(titles()).toEqual(['GPipe: 4 stages, 4 micro-batches, 63 ms a step']);
  expect(said()).toContain('its model cut into equal stages');
});

it('answers its sliders: a longer forward pass makes the plan longer, and one chip takes all back', async () => {
  await show({ schedule: 'gpipe', kind: 'plan', stages: 2, micro_batches: 4 });
  await click('What if');
  const slider = control<HTMLInputElement>('forward', 'input');
  expect(slider.getAttribute('aria-valuetext')).toBe('1 ms');
  await put('forward', String(Number(slider.value) + 20));
  const { forward } = view.options as PipelineOptions;
  expect(forward).toBeGreaterThan(1);
  expect(titles()[0]).not.toContain(' 15 ms');
  control('changed').click();
  await view.settled();
  // The numbers of stages and micro-batches are of what is taken back.
  expect(titles()[0]).toContain('33 ms');
});

it('has the run take the best plan of its own layout, where the training script lets viewers', async () => {
  steps = measuredPipeline();
  const configurable = { pipeline: { title: 'Pipeline', schema: {} } as InstrumentInfo };
  run.hello = { ...(run.hello ?? HELLO), configurable };
  await show({ schedule: 'measured', kind: 'plan' });
  // Of schedules with two chunks nothing can be applied to a run that has one.
  expect(said()).toMatch(/This run can switch to (ZB-H1|ZB-H2|Searched order): -/);
  await click('Apply at the next step');
  const order = run.patches[0]?.instruments?.['pipeline']?.['plan'] as {
    stages: number;
    chunks: number;
    order: string[];
  };
  expect(order.chunks).toBe(1);
  expect(order.stages).toBe(2);
  expect(order.order).toHaveLength(2);
  expect(said()).toMatch(/runs from step \d+ on\./);
});

it('puts operations together that are shorter than a pixel, and makes no search of a large plan unasked', async () => {
  // 4 × 130 × 8 passes are more than are searched unasked; of one chunk a stage they are few.
  const request = { view: 'pipeline', kind: 'all', stages: 4, micro_batches: 130, chunks: 8 } as const;
  const [plan, schedules] = await readView(run, { ...request, schedule: 'gpipe' }, { width: 1500 });
  expect(plain(plan?.title ?? '')).toContain('4 stages, 130 micro-batches');
  const pieces = plan?.recipe?.datasets['pieces'] ?? [];
  // 1,040 operations of 3 and 6 px: each is drawn.
  expect(pieces).toHaveLength(1040);
  const [narrow] = await readView(run, { ...request, kind: 'plan', schedule: 'gpipe' }, { width: 220 });
  const summed = narrow?.recipe?.datasets['pieces'] ?? [];
  expect(summed.length).toBeLessThan(1040);
  expect(summed.some(({ text }) => /\d operations, /.test(String(text)))).toBe(true);
  expect(schedules?.caption.join(' ')).toContain('The search takes long of so large a plan');
});

it('says what is wrong with numbers that are too many, and goes back to the usual ones', async () => {
  await show({ kind: 'plan', stages: 1024, micro_batches: 65_536 });
  expect(said()).toMatch(/operations|micro-batches/);
  await click('Go back to the usual');
  expect(titles()[0]).toContain('4 stages, 8 micro-batches');
});
