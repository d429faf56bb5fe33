/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { decodeFrame, encodeFrame, frameTable } from '../../protocol';
import { AuditLog, runEvents } from '../run-events';

type Row = readonly [step: number, time: number, who: string, action: string];

function frame(...rows: Row[]): ReturnType<typeof frameTable> {
  const columns = {
    step: rows.map(row => row[0]),
    time: rows.map(row => row[1]),
    who: rows.map(row => row[2]),
    action: rows.map(row => row[3]),
    detail: rows.map(() => '{}')
  };
  return frameTable(decodeFrame(encodeFrame('audit', columns, { step: 1 })));
}

it("keeps a checkpoint whose producer's clock is behind the hub's, and a replayed row of last year", () => {
  const log = new AuditLog();
  expect(log.append(frame([0, 2000, 'tracer', 'connect']))).toEqual([0, 0]);
  expect(log.append(frame([40, 1990, 'tracer', 'checkpoint']))).toEqual([40, 40]);
  expect(log.append(frame([7, 5, 'panel', 'configure'], [8, 6, 'panel', 'pause']))).toEqual([7, 8]);
  expect(log.rows.map(row => row.action)).toEqual(['connect', 'checkpoint', 'configure', 'pause']);
});

it('tells of every checkpoint, and of none twice', () => {
  const log = new AuditLog();
  const first = frame([0, 10, 'tracer', 'connect'], [40, 12, 'tracer', 'checkpoint']);
  log.append(first);
  expect(log.append(first)).toBeNull();
  expect(log.append(frame([80, 11, 'tracer', 'checkpoint']))).toEqual([80, 80]);
  expect(log.append(frame([80, 11, 'tracer', 'checkpoint']))).toBeNull();
  expect(log.rows.map(row => row.step)).toEqual([0, 40, 80]);
});

it('draws the checkpoint of the golden frame', () => {
  const log = new AuditLog();
  log.append(frameTable(decodeFrame(readFileSync('protocol/fixtures/frames/audit-checkpoint.frame'))));
  expect(runEvents(log.rows, [], null, null)).toEqual([
    { kind: 'checkpoint', first: 500, last: 500, text: 'Checkpoint saved: checkpoint-500' }
  ]);
});
