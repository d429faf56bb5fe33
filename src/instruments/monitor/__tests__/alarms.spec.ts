/** @jest-environment ./jest.environment.node.js */

import type { IRunReader } from '../../../client/run-reader';
import { detailOf, fakeReader, opened, rowOf } from '../../../report/__tests__/fake-reader';
import { Recorder } from '../../../report/recorder';
import { alarmEvents, isMuted, reachedFrom, readAlarms, unmuted, type IMuted } from '../store/alarms';
import { BROKEN, alarmBytes, alarmRow } from './alarm-rows';

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

it('follows an anomaly through other parts, modules and ranks, each once', () => {
  const alarms = [...BROKEN].sort((a, b) => a.step - b.step || a.place - b.place);
  const first = alarms[1] ?? alarmRow({});
  expect(reachedFrom([...alarms, ...alarms], first).map(each => each.direction)).toEqual([
    'loss',
    'backward'
  ]);
});

it('makes one event of the alarms of a step that are as grave', () => {
  expect(alarmEvents(BROKEN).map(({ kind, first, text }) => [kind, first, text])).toEqual([
    [
      'alarm',
      4,
      'nonfinite, decoder.layers.1.mlp.linear_fc1.weight: It is far above its usual level. And 1 more of this step.'
    ],
    ['alarm', 4, 'jump, loss: It is far above its usual level.']
  ]);
});

it('mutes by patterns as the monitor does', () => {
  const alarm = { rule: 'dead', name: 'layers.0.attn.bias' };
  expect(isMuted(alarm, [{ rule: 'dead' }])).toBe(true);
  expect(isMuted(alarm, [{ name: '*bias' }])).toBe(true);
  expect(isMuted(alarm, [{ rule: 'dead', name: 'layers.?.mlp*' }])).toBe(false);
  expect(isMuted(alarm, [{ name: 'layers.0.attn' }])).toBe(false);
});

it('tells what followed from a muted alarm in its place', () => {
  const note = { severity: 'note', cause: 4 } as const;
  const alarms = [
    alarmRow({ rule: 'loss', severity: 'critical', cause: 4 }),
    alarmRow({ ...note, rule: 'drift', step: 2 }),
    alarmRow({ ...note, rule: 'loss', step: 3 }),
    alarmRow({ ...note, rule: 'jump', cause: 5 })
  ];
  const severities = (...muted: IMuted[]): string[] => unmuted(alarms, muted).map(each => each.severity);
  expect(severities()).toEqual(['critical', 'note', 'note', 'note']);
  expect(severities({ rule: 'loss' })).toEqual(['warning', 'note']);
  expect(severities({ rule: 'loss', name: 'other' })).toEqual(['critical', 'note', 'note', 'note']);
  expect(severities({ rule: 'drift' })).toEqual(['critical', 'note', 'note']);
});
