import { timeWords } from '../../../../charts';
import { timelineAnswer } from '../../client/__tests__/timeline-answer';
import { TIMELINE, timelineOf } from '../../client/timeline-api';
import { MemoryRun } from '../../../../store/__tests__/memory-run';
import type { TimelineOptions } from '../../../../protocol/views.generated';
import { mountView } from '../../../../views/registry';
import type { IView } from '../../../../views/view';
import type { TimelineRequest } from '../../../../protocol/requests.generated';
import {
  button,
  clearPage,
  click,
  key,
  plain,
  showView,
  text,
  texts,
  title
} from '../../../../views/__tests__/page';

const ANSWER = timelineAnswer();

let run: MemoryRun;
let asked: TimelineRequest[];
let answer: object;
let view: IView;

beforeEach(() => {
  run = new MemoryRun();
  asked = [];
  answer = ANSWER;
  run.answerTo(TIMELINE, request => {
    asked.push(request);
    return Promise.resolve(timelineOf(answer));
  });
});

async function show(options: Partial<TimelineOptions> = {}): Promise<void> {
  view = await showView(run, { view: 'timeline', ...options });
}

const bars = (): Element[] => [...document.querySelectorAll('.pieces_marks path, .mark-rect.role-mark path')];

it('draws each stretch in the lane of its rank, says who makes the others wait, and how sure the clocks are', async () => {
  await show();
  expect(title()).toBe('One thing costs time');
  const said = text('.jp-MegalensView');
  expect(said).toContain('rank 1 computes 50 % slower');
  expect(said).toContain('2 ranks, steps 3 to 4, 10 ms each.');
  expect(said).toContain('Of steps 1 to 40 that there are.');
  expect(said.split('rank 1 computes 50 % slower')).toHaveLength(2);
  expect(said).toContain('2 of 80 ranks are drawn.');
  expect(said).toContain('Clocks agree to ± 2.5 µs (95 %).');
  expect(said).toContain('Spans shorter than a pixel are summed');
  expect(said).toContain('Nobody waits for it: rank 0 pauses.');
  expect(said).toContain('Step 5: rank 0 stalls for 2 ms.');
  expect(said).toContain('Without all of these a step is 4 ms shorter.');
  expect(said).toContain('Rank 7 is missing.');
  expect(bars().length).toBeGreaterThanOrEqual(4);
});

it('calls no job healthy where what would show it is not there', async () => {
  const lacks = ['The spans of one rank alone are there.'];
  for (const lacking of [[], lacks]) {
    const verdict = { culprits: [], hidden: [], step_ns: 10e6, lacking, problems: lacking };
    run.answerTo(TIMELINE, () => Promise.resolve(timelineOf({ ...ANSWER, verdict })));
    await show();
    const healthy = lacking.length === 0;
    expect(title().startsWith('Healthy')).toBe(healthy);
    expect(view.node.textContent?.includes(lacks[0] ?? '')).toBe(!healthy);
    clearPage();
  }
});

it('names the collective in which a job is stuck, and judges no step where there is none', async () => {
  for (const stuck of [[], ['Rank 2 has not called it.']]) {
    const verdict = { culprits: [], hidden: [], step_ns: null, stuck, problems: stuck };
    run.answerTo(TIMELINE, () => Promise.resolve(timelineOf({ ...ANSWER, verdict })));
    await show();
    expect(title()).toBe(
      stuck.length > 0 ? 'The job is stuck in a collective' : 'There is no whole step to judge'
    );
    expect(view.node.textContent?.includes('Rank 2 has not called it.')).toBe(stuck.length > 0);
    expect(view.node.textContent).not.toContain('NaN');
    clearPage();
  }
});

it('draws lanes before it is known who makes the others wait, and says so', async () => {
  const drafts: unknown[] = [];
  let judged = (): void => undefined;
  const verdict = new Promise<void>(resolve => (judged = resolve));
  run.answerTo(TIMELINE, async request => {
    drafts.push(request.draft);
    if (!request.draft) {
      await verdict;
      return timelineOf(ANSWER);
    }
    const none = { culprits: [], hidden: [], step_ns: 10e6, problems: [] };
    return timelineOf({ ...ANSWER, draft: true, verdict: none, slow: { ranks: [], steps: [], values: [] } });
  });
  const node = document.createElement('div');
  document.body.append(node);
  view = await mountView(node, run, { view: 'timeline' }, { renderer: 'svg' });
  const settled = view.settled();
  while (bars().length < 4) {
    await new Promise(done => setTimeout(done, 20));
  }
  expect(title()).toBe('Still looking for who makes the others wait …');
  judged();
  await settled;
  expect(title()).toBe('One thing costs time');
  expect(bars().length).toBeGreaterThanOrEqual(4);
  // The draft, the verdict, and the picture with it.
  expect(drafts).toEqual([true, undefined, undefined]);
  view.dispose();
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
  button('Show these steps')?.click();
  await new Promise(done => setTimeout(done, 400));
  await view.settled();
  expect(asked.at(-1)).toMatchObject({ first: 3, last: 7 });
});

it('draws by how much each rank computes longer than its stage, and the steps of a cell on a click', async () => {
  answer = timelineAnswer({
    slow: {
      ranks: [0, 1],
      steps: [3, 4, 6],
      values: [
        [0, -0.02, 0.01],
        [0.5, null, 0.25]
      ]
    }
  });
  await show({ kind: 'map' });
  expect(text('.jp-MegalensView')).toContain('% longer than its stage');
  expect(document.querySelectorAll('.jp-MegalensView image')).not.toHaveLength(0);
  const told = ['ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowRight', 'ArrowRight'].map(name => key(name));
  expect(told).toEqual([
    'rank 0, step 3, 0 % longer',
    'rank 1, step 3, 50 % longer',
    'rank 1, step 4, no data',
    'rank 1, step 5, no data',
    'rank 1, step 6, 25 % longer'
  ]);
});

it('draws the critical path where it is asked for', async () => {
  await show();
  expect(asked[0]).not.toHaveProperty('path');
  const rules = (): number => document.querySelectorAll('.jp-MegalensPlot .mark-rule line').length;
  const before = rules();
  clearPage();
  answer = timelineAnswer({
    path: [
      { rank: 1, begin: 5, end: 10 },
      { rank: 0, begin: 0, end: 5 }
    ]
  });
  await show({ path: true });
  expect(asked.at(-1)).toMatchObject({ path: true });
  // Two stretches, and the way from the one to the other.
  expect(rules()).toBe(before + 3);
});

it('says of a run of one rank what the analysis says, and blames nobody', async () => {
  const sentence = 'Steps 3 to 30: computing takes 1.04 s longer than in other steps.';
  const told = [{ kind: 'device', ranks: [0], first: 3, last: 30, sentence, slower: 0.75, price_ns: null }];
  const lanes = [{ rank: 0, stage: 0, half_width: 0, reference: 0 }];
  const verdict = { culprits: told, hidden: [], step_ns: 10e6, problems: [] };
  answer = { ...ANSWER, lanes, ranks_there: 1, ranks_chosen: 1, verdict };
  await show();
  const said = text('.jp-MegalensView');
  expect(said).toContain(sentence);
  expect(said).toContain('1 rank, steps 3 to 4, 10 ms each.');
  expect(said).not.toMatch(/its like|1 ranks|the others|± 0/);
});

it('writes on a lane what a long span is, and where nothing was recorded', async () => {
  const { pieces } = timelineAnswer() as { pieces: Record<string, unknown[]> };
  const evaluation = {
    lane: 0,
    depth: 0,
    kind: 7,
    begin: 14,
    end: 20,
    count: 1,
    row: 13,
    name: 'evaluation'
  };
  answer = timelineAnswer({
    pieces: Object.fromEntries(
      Object.entries(pieces).map(([name, values]) => [
        name,
        [...values, Object.entries(evaluation).find(([key]) => key === name)?.[1] ?? -1]
      ])
    )
  });
  await show();
  const written = (): string[] => texts('.jp-MegalensPlot .mark-text text');
  expect(written()).toEqual(expect.arrayContaining(['evaluation 6 ms', 'nothing recorded 6 ms']));
  clearPage();
  await show({ hidden: ['user', 'forward'] });
  expect(written().filter(each => each.startsWith('evaluation'))).toEqual([]);
  expect(written().filter(each => each.startsWith('nothing'))).toEqual(['nothing recorded 6 ms']);
});

it('says of which steps there are spans where there are none of those that are chosen', async () => {
  run.answerTo(TIMELINE, request => Promise.resolve(request.first === undefined ? timelineOf(ANSWER) : null));
  await show({ steps: [100, 120] });
  expect(text('.jp-MegalensView')).toContain(
    'Of these steps no spans are recorded; there are spans of steps 1 to 40.'
  );
});

it('says what is missing: spans, or a recording', async () => {
  answer = { steps_there: null };
  await show();
  expect(text('.jp-MegalensView')).toContain('This run has no recorded spans yet.');
  await click('Record phases');
  expect(run.patches).toEqual([{ flags: {}, instruments: { timeline: { granularity: 'phases' } } }]);
  clearPage();
  run.connection = { kind: 'recorded' };
  await show();
  expect(text('.jp-MegalensView')).toContain("megalens.trace(model, timeline='phases')");
  clearPage();
  run.answerTo(TIMELINE, undefined);
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
