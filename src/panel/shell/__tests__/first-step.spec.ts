/** @jest-environment ./jest.environment.node.js */
import { nullTranslator } from '@jupyterlab/translation';
import type { ConnectionState } from '../../../store/source';
import { runNotice } from '../notice';
import { openRun } from '../open-run';
import { ControlledRun } from './controlled-run';

const trans = nullTranslator.load('megalens');

function said(step: number, connection: ConnectionState = { kind: 'live' }): string | undefined {
  const run = new ControlledRun();
  run.connection = connection;
  run.hello!.config.flags['MLP1_mat_mul'] = { compressor: { name: 'Tile' } };
  run.status = { type: 'status', state: 'idle', step };
  return noticeOf(run);
}

const noticeOf = (run: ControlledRun): string | undefined =>
  runNotice(openRun('run-1', run), null, trans)?.sentence;

it('tells a training that has not taken its first step from one that pauses', () => {
  expect(said(0)).toBe('The training has joined and takes its first step. Charts begin with it.');
  expect(said(0, { kind: 'stale', since: 0 })).toContain('Training pauses after step 0.');
  expect(said(12)).toBe('Training pauses after step 12. Charts go on when the next step comes.');
});

it('says what has ended: a training at its step, or a lab', () => {
  const run = new ControlledRun();
  run.status = { type: 'status', state: 'finished', step: 12 };
  expect(noticeOf(run)).toBe('Training finished at step 12.');
  run.hello = { ...run.hello!, phase: 'generate' };
  expect(noticeOf(run)).toBe('The lab has ended.');
  run.connection = { kind: 'closed', reason: 'finished', message: '' };
  expect(noticeOf(run)).toBe('The lab has ended.');
  run.connection = { kind: 'live' };
  run.status = { type: 'status', state: 'lost', step: 12 };
  expect(noticeOf(run)).toBe('The process of the lab stopped unexpectedly.');
});
