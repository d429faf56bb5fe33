import { timelineAnswer } from '../../client/__tests__/timeline-answer';
import { TIMELINE, timelineOf } from '../../client/timeline-api';
import { MemoryRun } from '../../../../store/__tests__/memory-run';
import type { TimelineOptions } from '../../../../protocol/views.generated';
import { key, showView, text } from '../../../../views/__tests__/page';

const MEMORY = {
  ranks: [1],
  scale: 8e9,
  pieces: {
    lane: [0, 0, 0],
    begin: [0, 4, 10],
    end: [4, 10, 20],
    allocated: [2e9, 4e9, 1e9],
    reserved: [9e9, 9e9, 9e9],
    peak: [2e9, 8e9, 1e9],
    count: [1, 2, 1],
    step: [3, 3, -1],
    phase: ['forward', 'backward', ''],
    name: ['layers.0', 'layers.3', '']
  },
  peak: {
    bytes: 8e9,
    rank: 1,
    step: 3,
    limit: 16e9,
    reserved: 9e9,
    phase: 'backward',
    name: 'layers.3',
    limit_of: 'device',
    device: 'cuda:0'
  },
  holders: [
    { name: 'layers.0', bytes: 2e9 },
    { name: 'layers.3', bytes: 1e9 }
  ]
};

let run: MemoryRun;
let answer: object;

beforeEach(() => {
  run = new MemoryRun();
  answer = timelineAnswer({ memory: MEMORY });
  run.answerTo(TIMELINE, () => Promise.resolve(timelineOf(answer)));
});

async function show(options: Partial<TimelineOptions> = {}): Promise<void> {
  await showView(run, { view: 'timeline', ...options });
}

/** Heights of the bars of a colour, as shares of the largest. */
function heights(isPale: boolean): number[] {
  const bars = [...document.querySelectorAll('.jp-MegalensPlot .mark-rect path')]
    .map(each => ({ fill: each.getAttribute('fill') ?? '', path: each.getAttribute('d') ?? '' }))
    .filter(({ fill }) => /^#[0-9a-f]{8}$/i.test(fill) === isPale);
  return bars.map(({ path }) => Number(/v(-?[\d.]+)/.exec(path)?.[1] ?? NaN));
}

it('draws memory in a lane below, as high as its share of the largest peak', async () => {
  await show();
  expect(text('.jp-MegalensPlot')).toContain('memory 1');
  const [peak] = heights(true);
  const all = heights(false).slice(-3);
  expect(heights(true)).toHaveLength(1);
  expect(all.map(each => Number((each / (peak ?? 1)).toFixed(3)))).toEqual([0.25, 0.5, 0.125]);
});

it('says where most was allocated, of how much, and which layers keep most', async () => {
  await show();
  const said = text('.jp-MegalensView');
  expect(said).toContain('Most memory: 8 GB (50 % of the device) on rank 1 in step 3, backward of layers.3.');
  expect(said).toContain('Layers that keep most after their forward pass: layers.0 2 GB, layers.3 1 GB.');
});

it('goes by keys through the stretches of memory, too', async () => {
  await show();
  key('ArrowRight');
  key('ArrowDown');
  expect(key('ArrowDown')).toBe('memory of rank 1, step 3, forward of layers.0: 2 GB allocated, peak 2 GB');
  expect(key('ArrowRight')).toBe('memory of rank 1, step 3, backward of layers.3: 4 GB allocated, peak 8 GB');
  expect(key('ArrowRight')).toBe('memory of rank 1: 1 GB allocated, peak 1 GB');
});

it('hides memory by the legend, with its lanes and sentences, and leaves the rest as it is', async () => {
  await show({ hidden: ['memory'] });
  const said = text('.jp-MegalensView');
  expect(said).not.toContain('Most memory');
  expect(said).not.toContain('memory 1');
  expect(heights(true)).toHaveLength(0);
  expect(said).toContain('2 ranks, steps 3 to 4');
});

it('says of a snapshot which lines hold most, and of no step', async () => {
  const peak = { ...MEMORY.peak, phase: 'trace', name: '', limit: 0, limit_of: '' };
  answer = timelineAnswer({
    memory: { ...MEMORY, peak, holders: [{ name: 'model.py:42 forward', bytes: 3e9 }] }
  });
  await show();
  const said = text('.jp-MegalensView');
  expect(said).toContain('Most memory: 8 GB on rank 1.');
  expect(said).toContain('Lines that hold most: model.py:42 forward 3 GB.');
});

it('keeps memory in the text of a report', () => {
  const parse = TIMELINE.held?.parse;
  const held = parse?.(JSON.stringify(timelineOf(answer)));
  expect(held?.memory?.pieces[1]).toMatchObject({ kind: 'memory', lane: 2, peak: 8e9, phase: 'backward' });
  expect(parse?.(JSON.stringify(timelineOf(timelineAnswer())))?.memory).toBeUndefined();
});
