import { timelineOf, type ITimelineRequest } from '../../client/timeline-api';
import { MemoryRun } from '../../store/__tests__/memory-run';
import type { TimelineOptions } from '../../protocol/views.generated';
import { mountView } from '../registry';
import type { IRunSource } from '../../store/source';
import { timeWords } from '../timeline/span-words';
import type { IView } from '../view';

// The first test also loads and transforms Vega.
jest.setTimeout(30_000);

/** Two ranks and a step of 10 ms: rank 1 computes longer, rank 0 waits for it in a collective; a sum of three short spans. */
const ANSWER = {
  steps_there: [1, 40],
  chosen: [3, 4],
  ranks_there: 80,
  ranks_chosen: 80,
  verdict: {
    culprits: [
      {
        kind: 'device',
        ranks: [1],
        first: 3,
        last: 30,
        sentence: 'Steps 3 to 30: rank 1 computes 50% slower.'
      }
    ],
    step_ns: 10e6,
    problems: ['Rank 7 is missing.']
  },
  slow: { ranks: [0, 1], steps: [3], values: [[0], [0.5]] },
  lanes: [
    { rank: 0, stage: -1, half_width: 0, reference: 0 },
    { rank: 1, stage: -1, half_width: 0.0025, reference: 0 }
  ],
  window: [0, 20],
  whole: [0, 20],
  steps: [
    [3, 0, 10],
    [4, 10, 20]
  ],
  kinds: ['step', 'forward', 'backward', 'wgrad', 'optimizer', 'data', 'checkpoint', 'user', 'collective'],
  pieces: {
    lane: [0, 1, 1, 0],
    depth: [0, 0, 0, 2],
    kind: [1, 1, 4, 8],
    begin: [0, 0, 9, 4],
    end: [4, 8, 9.5, 8],
    count: [1, 1, 3, 1],
    row: [10, 11, -1, 12],
    name: ['', '', '', 'all_reduce'],
    group: ['', '', '', '0-1'],
    step: [3, 3, -1, 3],
    micro_batch: [0, 0, -1, -1],
    chunk: [0, 0, -1, -1],
    bytes: [0, 0, -1, 4096],
    peer: [-1, -1, -1, -1]
  },
  links: [] as object[]
};

let run: MemoryRun & Pick<IRunSource, 'timeline'>;
let asked: ITimelineRequest[];
let answer: object;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
  asked = [];
  answer = ANSWER;
  run.timeline = (request: ITimelineRequest) => {
    asked.push(request);
    return Promise.resolve(timelineOf(answer));
  };
});

afterEach(() => {
  view?.dispose();
  document.body.replaceChildren();
});

async function show(options: Partial<TimelineOptions> = {}): Promise<void> {
  const node = document.createElement('div');
  document.body.append(node);
  view = await mountView(node, run, { view: 'timeline', ...options }, { renderer: 'svg' });
  await view.settled();
}

const plain = (text: string): string => text.replace(/[\u2009\u202f]/g, ' ').replace(/\u2212/g, '-');
const text = (selector: string): string => plain(document.querySelector(selector)?.textContent ?? '');
const bars = (): Element[] => [...document.querySelectorAll('.pieces_marks path, .mark-rect.role-mark path')];

it('draws each stretch in the lane of its rank, says who makes the others wait, and how sure the clocks are', async () => {
  await show();
  expect(text('.jp-MegalensView-title')).toBe('One thing costs time');
  const said = text('.jp-MegalensView');
  expect(said).toContain('rank 1 computes 50% slower');
  expect(said).toContain('2 ranks, steps 3 to 4, 10 ms each.');
  expect(said).toContain('Of steps 1 to 40 that there are.');
  expect(said.split('rank 1 computes 50% slower')).toHaveLength(2);
  expect(said).toContain('2 of 80 ranks are drawn.');
  expect(said).toContain('Clocks agree to ± 2.5 µs (95 %).');
  expect(said).toContain('Spans shorter than a pixel are summed');
  expect(said).toContain('Rank 7 is missing.');
  expect(bars().length).toBeGreaterThanOrEqual(4);
});

it('hides kinds by the legend', async () => {
  await show();
  const before = bars().length;
  const entries = [...document.querySelectorAll<HTMLElement>('.jp-MegalensLegend button')];
  expect(entries.map(each => each.textContent)).toEqual(
    expect.arrayContaining(['forward', 'optimizer', 'blocked in a collective'])
  );
  entries.find(each => each.textContent === 'forward')?.click();
  await new Promise(done => setTimeout(done, 400));
  await view.settled();
  expect(bars()).toHaveLength(before - 2);
});

it('asks for the ranks and steps of its options, and shows what a sentence is about', async () => {
  await show({ ranks: '0-1', steps: [2, 9] });
  expect(asked[0]).toMatchObject({ ranks: '0-1', first: 2, last: 9 });
  const action = [...document.querySelectorAll('button')].find(
    each => each.textContent === 'Show these steps'
  );
  action?.click();
  await new Promise(done => setTimeout(done, 400));
  await view.settled();
  expect(asked.at(-1)).toMatchObject({ first: 3, last: 7 });
});

it('says what is missing: spans, or a recording', async () => {
  answer = { steps_there: null };
  await show();
  expect(text('.jp-MegalensView')).toContain('This run has no recorded spans yet.');
  const record = [...document.querySelectorAll('button')].find(each => each.textContent === 'Record phases');
  record?.click();
  await view.settled();
  expect(run.patches).toEqual([{ flags: {}, instruments: { timeline: { granularity: 'phases' } } }]);
  view.dispose();
  document.body.replaceChildren();
  run.connection = { kind: 'recorded' };
  await show();
  expect(text('.jp-MegalensView')).toContain("megalens.trace(model, timeline='phases')");
  view.dispose();
  document.body.replaceChildren();
  delete run.timeline;
  await show();
  expect(text('.jp-MegalensView')).toContain('The timeline is read from a recording, and here is none.');
});

it('takes only what an answer may hold', () => {
  expect(() => timelineOf({ ...ANSWER, pieces: 3 })).toThrow();
  expect(timelineOf({ steps_there: null })).toBeNull();
});

it.each([
  [0, '0 ms'],
  [0.0025, '2.5 µs'],
  [12.5, '12.5 ms'],
  [1500, '1.5 s']
])('says %p ms as %p', (ms, words) => {
  expect(plain(timeWords(ms))).toBe(words);
});
