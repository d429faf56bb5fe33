/** @jest-environment ./jest.environment.node.js */

import { answering } from '../../../client/__tests__/answering';
import { detailOf, fakeReader, opened, rowOf } from '../../../report/__tests__/fake-reader';
import { Recorder } from '../../../report/recorder';
import { timelineAnswer } from '../client/__tests__/timeline-answer';
import { TIMELINE, timelineOf } from '../client/timeline-api';
import type { TimelineRequest } from '../../../protocol/requests.generated';

const ROWS = [rowOf({ step: 1, layer: 1 })];

it('holds a timeline as it was drawn, coarse and whole', async () => {
  const asked: TimelineRequest[] = [];
  const answer = timelineOf(timelineAnswer({ slow: { ranks: [0], steps: [3], values: [[null]] } }));
  const asker = answering(TIMELINE, request => {
    asked.push(request);
    return Promise.resolve(answer);
  });
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), asker }, 0);
  const request = { ranks: 'all', columns: 1600 };
  await recorder.asker(TIMELINE)?.({ ...request, row: 3, window: [1, 2] });
  expect(asked).toEqual([{ ranks: 'all', columns: 400 }]);
  const run = await opened(recorder);
  // What is zoomed into is the same picture; other ranks are not here.
  expect(await run.asker(TIMELINE)?.({ ...request, window: [1, 2] })).toEqual(answer);
  await expect(run.asker(TIMELINE)?.({ ...request, ranks: '0-3' })).rejects.toThrow(
    'This file holds what its views drew'
  );
});
