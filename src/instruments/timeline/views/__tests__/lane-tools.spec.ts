import { MemoryRun } from '../../../../store/__tests__/memory-run';
import type { TimelineRequest } from '../../../../protocol/requests.generated';
import type { TimelineOptions } from '../../../../protocol/views.generated';
import { timelineAnswer } from '../../client/__tests__/timeline-answer';
import { TIMELINE, timelineOf } from '../../client/timeline-api';
import { Overview } from '../lane-tools';
import {
  clearPage,
  click,
  key,
  plain,
  press,
  said,
  settled,
  showView,
  tableRows,
  text
} from '../../../../views/__tests__/page';

let asked: TimelineRequest[];

/** Show a timeline whose answers are made from the requests. */
async function show(
  answer: (request: TimelineRequest) => object,
  options: Partial<TimelineOptions> = {}
): Promise<void> {
  const run = new MemoryRun();
  asked = [];
  run.answerTo(TIMELINE, request => {
    asked.push(request);
    return Promise.resolve(timelineOf(timelineAnswer(answer(request))));
  });
  await showView(run, { view: 'timeline', ...options });
}

const rows = (): string[] => tableRows().map(row => row.join(' | '));

const FOUND = {
  count: 3,
  since: 0,
  first: [3, 7, 12].map(begin => ({ rank: 0, step: begin, begin, end: begin + 0.5 }))
};

it('goes through the spans that are searched for, to the next and back, by buttons and by n and N', async () => {
  await show(() => ({ found: FOUND }), { find: 'reduce' });
  expect(asked[0]).toMatchObject({ find: 'reduce' });
  expect(text('.jp-MegalensNotes')).toContain('3 spans have “reduce” in their name.');
  await click('Next');
  expect(text('.jp-MegalensNotes')).toContain('1 of 3: rank 0, step 3.');
  expect(said()).toBe('1 of 3: rank 0, step 3');
  await press('n');
  await press('n');
  expect(said()).toBe('3 of 3: rank 0, step 12');
  await press('n');
  expect(said()).toBe('1 of 3: rank 0, step 3');
  await click('Previous');
  expect(text('.jp-MegalensNotes')).toContain('3 of 3: rank 0, step 12.');
  await click('Clear');
  expect(asked.at(-1)).not.toHaveProperty('find');
});

it('outlines what is found, listed or drawn', async () => {
  const outlined = (): number => document.querySelectorAll('.found_marks path, .layer_1_marks path').length;
  await show(() => ({ found: FOUND }), { find: 'nowhere' });
  const listed = outlined();
  clearPage();
  await show(() => ({ found: FOUND }), { find: 'reduce' });
  // The three that are listed, and the one that is drawn in another place.
  expect(outlined()).toBe(listed + 1);
});

it('asks for later ones where the answer holds the first of many', async () => {
  const found = ({ found_from: since = 0 }: TimelineRequest): object => ({
    count: 201,
    since,
    first: Array.from({ length: Math.min(200, 201 - since) }, (_, at) => ({
      rank: 1,
      step: since + at,
      begin: 1,
      end: 2
    }))
  });
  await show(request => ({ found: found(request) }), { find: 'a' });
  await click('Previous');
  expect(asked.at(-1)).toMatchObject({ found_from: 200 });
  expect(said()).toBe('201 of 201: rank 1, step 200');
});

const SUMS = [
  { kind: 'forward', name: '', count: 4, total: 12 },
  { kind: 'user', name: 'evaluation', count: 1, total: 3 }
];

it('sums the spans that Shift and the arrows choose, says and copies the sums, and lets go by Esc', async () => {
  const copied: string[] = [];
  Object.assign(navigator, { clipboard: { writeText: async (words: string) => void copied.push(words) } });
  await show(({ sums }) => ({ sums: sums ? SUMS : null }));
  await press('ArrowRight');
  key('ArrowDown', { shiftKey: true });
  await settled();
  expect(asked.at(-1)).toMatchObject({ sums: [0, 8], sums_ranks: '0,1' });
  expect(said()).toContain('8 ms selected on 2 ranks: 5 spans. forward 12 ms evaluation 3 ms');
  expect(rows()).toEqual([
    'forward | forward | 4 | 12 ms | 3 ms',
    'evaluation | your own spans | 1 | 3 ms | 3 ms'
  ]);
  await click('Copy the sums');
  expect(copied).toEqual([
    'name\tkind\tcount\ttotal, ms\tmean, ms\nforward\tforward\t4\t12\t3\nevaluation\tuser\t1\t3\t3'
  ]);
  await press('Escape');
  expect(rows()).toEqual([]);
  expect(asked.at(-1)).not.toHaveProperty('sums');
});

it('says where nobody can sum, as in a report', async () => {
  await show(() => ({ sums: null }));
  await press('ArrowRight');
  key('ArrowRight', { shiftKey: true });
  await settled();
  expect(text('.jp-MegalensNotes')).toContain('Spans are summed where the recording is; here it is not.');
});

it('says what keys do, to who sees and to who hears', async () => {
  await show(() => ({}));
  const line = document.querySelector('.jp-MegalensView-keys');
  expect(line?.textContent).toContain('w and s zoom, a and d move, ');
  expect(document.querySelector('.jp-MegalensStage')?.getAttribute('aria-describedby')).toBe(line?.id);
});

it('moves and zooms by w, a, s and d, which the minimap shows and says', async () => {
  await show(({ window }) => (window ? { window } : {}));
  const shown = (): string => plain(document.querySelector('[role=slider]')?.getAttribute('aria-valuetext'));
  expect(shown()).toBe('0 ms to 20 ms');
  await press('w');
  expect(shown()).toBe('2 ms to 18 ms');
  await press('d');
  expect(shown()).toBe('3.6 ms to 19.6 ms');
  await press('a');
  await press('s');
  expect(shown()).toBe('0 ms to 20 ms');
});

it('says in the minimap where there are steps that were not looked at, and goes there', () => {
  const chosen: [number, number][] = [];
  const overview = new Overview(
    (words, ...args) => words.replace(/%(\d)/g, (_, at: string) => String(args[Number(at) - 1])),
    steps => chosen.push(steps)
  );
  const answer = timelineOf(timelineAnswer({}))!;
  overview.keep(answer);
  const { minimap } = overview.draw(answer, false);
  // Steps 3 and 4 of 1 to 40, 10 ms each.
  expect(minimap).toMatchObject({ extent: [-20, 380], read: [0, 20] });
  minimap?.beyond?.([100, 150]);
  minimap?.beyond?.([-40, -10]);
  expect(chosen).toEqual([
    [12, 17],
    [1, 2]
  ]);
  const forward = minimap?.layers[0]?.parts;
  // Both ranks compute forward at first, and one of them on.
  expect([0, 200, 599].map(at => forward?.[at]?.toFixed(6))).toEqual(['1.000000', '0.500000', '0.000000']);
});
