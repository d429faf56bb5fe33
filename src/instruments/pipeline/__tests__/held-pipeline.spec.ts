/** @jest-environment ./jest.environment.node.js */

import { answering } from '../../../client/__tests__/answering';
import { detailOf, fakeReader, opened, rowOf } from '../../../report/__tests__/fake-reader';
import { Recorder } from '../../../report/recorder';
import { pipelineAnswer } from '../client/__tests__/pipeline-answer';
import { PIPELINE, pipelineOf } from '../client/pipeline-api';

const ROWS = [rowOf({ step: 1, layer: 1 })];

it('holds measured steps of a pipeline as they were answered, and not others', async () => {
  const answer = pipelineOf(pipelineAnswer());
  const asker = answering(PIPELINE, () => Promise.resolve(answer));
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), asker }, 0);
  expect(await recorder.asker(PIPELINE)?.({ first: 3 })).toEqual(answer);
  const run = await opened(recorder);
  expect(await run.asker(PIPELINE)?.({ first: 3 })).toEqual(answer);
  await expect(run.asker(PIPELINE)?.({})).rejects.toThrow('This file holds what its views drew');
});

it('holds the newest measured steps where there are too many operations', async () => {
  const many = 15_000;
  const one = pipelineAnswer({ left: 0, steps: [3, 4, 5].map(step => ({ step, duration: 1 })) });
  const zeros = new Array<number>(3 * many).fill(0);
  const names = ['stage', 'rank', 'chunk', 'virtual_stage', 'micro_batch', 'begin_ms', 'end_ms'];
  const operations = {
    ...Object.fromEntries(names.map(name => [name, zeros])),
    step: zeros.map((_, at) => 3 + Math.floor(at / many)),
    kind: zeros.map(() => 'F')
  };
  const answer = pipelineOf({ ...one, operations });
  const asker = answering(PIPELINE, () => Promise.resolve(answer));
  const recorder = Recorder.of('r1', detailOf(), { ...fakeReader(ROWS), asker }, 0);
  const drawn = await recorder.asker(PIPELINE)?.({});
  expect(drawn?.steps).toEqual([{ step: 5, duration: 1 }]);
  expect(drawn?.left).toBe(2);
  expect(drawn?.operations.step).toHaveLength(many);
  expect(await (await opened(recorder)).asker(PIPELINE)?.({})).toEqual(drawn);
});
