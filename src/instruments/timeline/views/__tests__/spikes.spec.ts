/** @jest-environment ./jest.environment.node.js */
import { readPicture } from '../../../../charts/__tests__/read-png';
import { MemoryRun } from '../../../../store/__tests__/memory-run';
import { readView } from '../../../../views/still';
import { timelineAnswer } from '../../client/__tests__/timeline-answer';
import { TIMELINE, timelineOf } from '../../client/timeline-api';

/** Of spans in lanes the server keeps the extremes: tests/instruments/timeline/test_lanes.py. */
it.each([10, 1000, 100_000])('the one slow step of %i has a pixel of its own in rank × step', async count => {
  const run = new MemoryRun();
  const steps = Array.from({ length: count }, (_, at) => at + 1);
  const spike = Math.floor(count * 0.617);
  const values = [0, 1].map(rank => steps.map((_, at) => (rank === 1 && at === spike ? 5 : 0)));
  run.answerTo(TIMELINE, () =>
    Promise.resolve(timelineOf(timelineAnswer({ slow: { ranks: [0, 1], steps, values } })))
  );
  for (const width of [300, 1000, 3000]) {
    const [still] = await readView(run, { view: 'timeline', kind: 'map' }, { width });
    const { data } = readPicture(still?.recipe?.datasets['pictures']?.[0]?.['url']);
    const colors = new Set(new Uint32Array(data.buffer));
    expect([width, colors.size]).toEqual([width, 2]);
  }
});
