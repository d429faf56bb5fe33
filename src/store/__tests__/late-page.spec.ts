/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { BIT_CAUGHT_UP } from '../../protocol/frame';
import { encodeFrame } from '../../protocol/arrow-columns';
import { FakeHub } from '../../client/__tests__/fake-hub';
import { LiveRun } from '../live-run';

const message = (name: string): object =>
  JSON.parse(readFileSync(`protocol/fixtures/messages/${name}.json`, 'utf8')) as object;

it('says which steps are still sent to a page that comes late, until all are here', () => {
  const hub = new FakeHub();
  const run = new LiveRun({ openSocket: () => hub, peer: { name: 'jest', version: '0' } });
  const loss = (step: number, seq: number, bits = BIT_CAUGHT_UP): void => {
    const row = { step: [step], time: [1], rank: [0], name: ['loss'], value: [2], unit: [''] };
    hub.say(encodeFrame('scalars', row, { step, seq, bits }));
  };
  hub.open();
  hub.say({ ...message('hello'), seq: 3 });
  hub.say({ ...message('status'), step: 3981 });
  expect(run.reading).toBeNull();
  loss(2099, 1);
  expect(run.reading).toEqual([2100, 3981]);
  const heard: string[] = [];
  run.changed.connect((_, { kind }) => heard.push(kind));
  loss(3000, 2);
  expect([run.reading, heard]).toEqual([[3001, 3981], []]);
  loss(3981, 3);
  expect([run.reading, heard]).toEqual([null, ['connection']]);
  // What is sent as it happens is not behind, whatever a status said meanwhile.
  hub.say({ ...message('status'), step: 3990 });
  loss(3985, 4, 0);
  expect(run.reading).toBeNull();
  run.dispose();
});
