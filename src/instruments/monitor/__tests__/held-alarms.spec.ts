/** @jest-environment ./jest.environment.node.js */

import type { IRunReader } from '../../../client/run-reader';
import { detailOf, fakeReader, opened, rowOf } from '../../../report/__tests__/fake-reader';
import { Recorder } from '../../../report/recorder';
import { readAlarms } from '../store/alarms';
import { alarmBytes, alarmRow } from './alarm-rows';

const ROWS = [rowOf({ step: 1, layer: 1 })];

it('holds the alarms of the run, without paths of its machine', async () => {
  const reader = fakeReader(ROWS);
  const alarms = [
    alarmRow({ step: 4, value: NaN, sentence: 'See /data/rules.py.' }),
    alarmRow({ step: 2, severity: 'note' })
  ];
  const stream: IRunReader['stream'] = (run, name, query) =>
    name === 'alarms'
      ? Promise.resolve({ bytes: alarmBytes(alarms), sampledEvery: 1 })
      : reader.stream(run, name, query);
  const recorder = Recorder.of('r1', detailOf(), { ...reader, stream }, 0);
  await readAlarms(recorder);
  const held = await readAlarms(await opened(recorder));
  expect(held.map(({ step, value, sentence }) => [step, value, sentence])).toEqual([
    [2, 8, 'It is far above its usual level.'],
    [4, NaN, 'See …/rules.py.']
  ]);
  const empty = Recorder.of('r1', detailOf(), reader, 0);
  await expect(readAlarms(await opened(empty))).rejects.toThrow('This file holds what its views drew');
});
