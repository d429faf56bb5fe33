import { readFileSync } from 'fs';
import { PIPELINE, type IPipelineSteps } from '../../../client/pipeline-api';
import type { SplitOptions } from '../../../../../protocol/views.generated';
import { MemoryRun } from '../../../../../store/__tests__/memory-run';
import { readView } from '../../../../../views/still';
import type { MeasuredRow } from '../../../views/__tests__/measured-pipeline';
import { measuredPipeline, measuredWhole } from '../../../views/__tests__/measured-pipeline';
import { click, plain, showView, texts, update } from '../../../../../views/__tests__/page';

let run: MemoryRun;
let steps: IPipelineSteps | null;

beforeEach(() => {
  run = new MemoryRun();
  steps = null;
  run.answerTo(PIPELINE, () => Promise.resolve(steps));
});

async function show(options: Partial<SplitOptions> = {}): Promise<void> {
  await showView(run, { view: 'split', ...options });
}

const said = (): string => plain(document.body.textContent ?? '');
const titles = (): string[] => texts('.jp-MegalensView-title');
const bars = (): string[] =>
  [...document.querySelectorAll('.pieces_marks path, .pieces_marks rect')].map(
    each => each.getAttribute('fill') ?? ''
  );
const marks = (kind: string): string[] => texts(`.${kind}_marks text`);

/** Two devices that hold half of a training and one micro-batch, two that hold weights alone and take three times as long; seven micro-batches, so that there is one replica. */
const TIGHT: Partial<SplitOptions> = {
  ...{ devices: 2, forward: 24, backward: 48, memory_gb: 13 },
  ...{ others: 2, others_slower: 3, others_memory_gb: 4 },
  ...{ micro_batches: 7, model_layers: 6, weight_mb: 2000, state_mb: 16_000, activation_mb: 8000 }
};

it('plans a split from typed times: forward passes fill, then each micro-batch is recomputed and goes back', async () => {
  await show({ ...TIGHT, kind: 'plan' });
  // By hand: 36 ms of the slow forward process, 7 × (12 + 24) ms of the last stage, 24 ms back through the first.
  expect(titles()).toEqual(['Split, 2 stages: 312 ms a step']);
  expect(said()).toContain('A step takes 312 ms on 2 fast, 1 slow; the fullest device holds 12 GB.');
  expect(said()).toContain('It cannot deadlock');
  // 7 F, 14 R and 14 B; the optimizer takes no time.
  expect(bars()).toHaveLength(35);
  expect(new Set(bars()).size).toBe(3);
});

it('says when a split is worth it, by how much against what, and shows either', async () => {
  await show({ ...TIGHT, kind: 'plan', others_slower: 1, others: 1 });
  // 12 + 7 × 36 + 24 ms against what two or three devices do otherwise.
  expect(titles()).toEqual(['Split, 2 stages: 288 ms a step']);
  expect(said()).toMatch(/Split: -\d+(\.\d+)? % a step \(95 %: -\d+(\.\d+)? to -\d+(\.\d+)?\) against /);
  await update({ memory_gb: null });
  expect(said()).toMatch(
    /Do not split: the best split takes \+\d+(\.\d+)? % a step \(95 %: .*\) against Pipeline, 3 stages/
  );
  await click('Show Pipeline');
  // The third device holds one layer of 12 ms a pass there and back, the two others 3 and 2: 7 × 36 + 12 ms.
  expect(titles()).toEqual(['Pipeline, 3 stages: 264 ms a step']);
});

it('lays layouts side by side, the fastest first, with devices and memory, and names those that do not fit', async () => {
  await show({ ...TIGHT, kind: 'layouts' });
  expect(marks('headings')).toContain('Split, 2 stages · 312 ms a step · 2 fast, 1 slow · 12 GB');
  expect(said()).toMatch(
    /Ordinary: no layout of \d+ fits in memory; the best of them needs 11 GB more on a device/
  );
  await update({ memory_gb: 1, others_memory_gb: 1 });
  expect(said()).toContain('fits in memory');
  await click('Take the limits of memory away');
  expect(bars().length).toBeGreaterThan(0);
});

it.each(['megafbd', 'one_flag', 'megalens'] as const)(
  'draws the map of %s as it was made another way',
  async name => {
    const cases = JSON.parse(readFileSync('protocol/fixtures/rank-maps.json', 'utf8')) as {
      request: { layout: string; tensor: number; pipeline: number; data: number };
      processes: string;
    }[];
    const found = cases.find(
      ({ request: each }) =>
        each.layout === name &&
        each.tensor === 2 &&
        each.pipeline === 3 &&
        each.data === (name === 'megalens' ? 1 : 2)
    );
    await show({
      kind: 'map',
      rank_map: name,
      tensor: 2,
      pipeline: 3,
      data: 1,
      ...(name === 'megalens' ? { forward_tensor: 1 } : {})
    });
    const expected = found?.processes.split(' ').map((virtual, real) => {
      const all = virtual.split(',');
      const range = all.length > 1 ? `v${all[0]}\u2013${all.at(-1)}` : `v${virtual}`;
      return virtual === '-' ? `${real}` : `${real} (${range})`;
    });
    expect(marks('numbers')).toEqual(expected);
    expect(said().includes('Rank 0 coordinates the others')).toBe(name === 'megafbd');
  }
);

it('says why a map is none, and goes back', async () => {
  await show({ kind: 'map', tensor: 6, forward_tensor: 4 });
  expect(said()).toContain('forward_tensor must divide tensor, 6, got 4. Try 1, 2, 3, 6.');
  await click('Go back to the usual');
  expect(titles()[0]).toContain('Roles of');
});

it('lays the measured step of a split under each process, with what was planned', async () => {
  steps = measuredPipeline([SPLIT, SPLIT], [90, 94], 3);
  await show({ layout: 'run', kind: 'plan' });
  // 10 + 2 × (10 + 20) + 20 ms planned of the measured times; the second step took 4 ms more.
  expect(titles()).toEqual(['Split, 2 stages: 90 ms a step']);
  expect(said()).toContain(
    'Under each process: step 8 as measured. Steps take 92 ms, 90 ms planned (+2.2 %).'
  );
  expect(said()).toContain('Times are the medians of 2 measured steps.');
  const rows = ['0 forward', 'measured', '0 backward', 'measured', '1 backward', 'measured'];
  expect(said()).toContain(rows.join(''));
  // 2 F, 4 R and 4 B, planned and measured.
  expect(bars()).toHaveLength(20);
  await update({ measured: false });
  expect(bars()).toHaveLength(10);
});

it('is drawn by the engine in a kernel, too', async () => {
  const stills = await readView(run, { view: 'split', ...TIGHT });
  expect(stills.map(({ title }) => plain(title))).toEqual([
    'Split, 2 stages: 312 ms a step',
    'Roles of 3 processes: tensor parallel 1, stages 2, replicas 1',
    expect.stringMatching(/^\d layouts side by side$/)
  ]);
  expect(stills[0]?.caption.join(' ')).toContain('It cannot deadlock');
});

/** A split of two stages without the last forward process: its forward process, then its backward processes. */
const SPLIT: readonly MeasuredRow[] = [
  [0, 'F', 0, 0, 10],
  [0, 'F', 1, 10, 20],
  [1, 'F', 0, 0, 10],
  [1, 'B', 0, 40, 60],
  [1, 'F', 1, 60, 70],
  [1, 'B', 1, 70, 90],
  [2, 'F', 0, 10, 20],
  [2, 'B', 0, 20, 40],
  [2, 'F', 1, 40, 50],
  [2, 'B', 1, 50, 70]
];

it('opens with an example for a run of one device, and says once that a split needs two', async () => {
  steps = measuredWhole();
  await show();
  const states = (): string[] =>
    [...document.querySelectorAll('.jp-MegalensState p')]
      .filter(each => each.closest('[hidden]') === null)
      .map(each => each.textContent ?? '');
  expect(said()).toContain(
    'A split needs two devices; this run has one, so an example with two like it is shown.'
  );
  expect(said()).toContain('on 2 devices');
  expect(bars().length).toBeGreaterThan(0);
  await update({ devices: 1, others: 0 });
  expect(states()).toEqual(['A split needs two devices, and one is set.']);
  await click('Show an example with two');
  expect(bars().length).toBeGreaterThan(0);
});
