/** @jest-environment ./jest.environment.node.js */

import type { IRunReader } from '../../../client/run-reader';
import { detailOf, fakeReader, opened, rowOf } from '../../../report/__tests__/fake-reader';
import { Recorder } from '../../../report/recorder';
import { streamBytes } from '../../../store/__tests__/written-run';
import { readToken, readTokens } from '../store/generations';

const ROWS = [rowOf({ step: 1, layer: 1 })];

it('holds each row of a stream once, whichever parts of it were asked for', async () => {
  const reader = fakeReader(ROWS);
  const tokens = [1, 2].flatMap(generation =>
    ['a', '/srv/u/x'].map((text, position) => ({
      generation,
      position,
      text,
      candidate_ids: [7],
      candidate_texts: [text]
    }))
  );
  const ofGeneration = (where: object = {}) =>
    tokens.filter(({ generation }) => generation === (where as { generation?: number }).generation);
  const stream: IRunReader['stream'] = (run, name, query) =>
    name === 'tokens'
      ? Promise.resolve({ bytes: streamBytes('tokens', ofGeneration(query?.where)), sampledEvery: 1 })
      : reader.stream(run, name, query);
  const recorder = Recorder.of('r1', detailOf(), { ...reader, stream }, 0);
  const asked = await readTokens(recorder, 1, 0);
  expect(asked).toHaveLength(2);
  await readTokens(recorder, 1);
  await readTokens(recorder, 2);
  const held = await opened(recorder);
  expect((await held.table('tokens')).length).toBe(4);
  const [, last] = await readTokens(held, 2);
  expect(last).toMatchObject({ position: 1, text: '…/x', candidates: [] });
  // Any token of a report can be looked at, although nobody did while it was made.
  expect((await readToken(held, 2, 0, 1))?.candidates).toMatchObject([{ id: 7, text: '…/x' }]);
});
