/** @jest-environment ./jest.environment.node.js */
import { runEvents, type IRunAudit } from '../run-events';

const row = (step: number, action: string, detail: object): IRunAudit => ({
  step,
  time: step,
  who: 'tracer',
  action,
  detail: JSON.stringify(detail)
});

const eventsOf = (...audit: IRunAudit[]): string[] =>
  runEvents(audit, [], null, null).map(({ kind, first, last }) => `${kind} ${first} ${last}`);

it('names a rank that attached again a restart, and not a tracer that learned more in its first step', () => {
  const start = [
    row(0, 'connect', { rank: 0 }),
    row(1, 'connect', { rank: 0 }),
    row(7, 'announce', { rank: 0 })
  ];
  expect(eventsOf(...start)).toEqual([]);
  const lost = row(40, 'disconnect', { rank: 0, reason: 'lost' });
  expect(eventsOf(...start, lost, row(41, 'connect', { rank: 0 }))).toEqual(['lost 40 40', 'restart 41 41']);
});

it('ends a perturbation at its last step, or where it was taken back', () => {
  const armed = row(10, 'perturb', { perturb: { kind: 'scale', steps: 5 } });
  expect(eventsOf(armed)).toEqual(['perturbation 10 14']);
  expect(eventsOf(armed, row(12, 'disarm', { perturb: null }))).toEqual(['perturbation 10 11']);
});

it('names what the training saved, as text that a page can show', () => {
  const texts = (detail: object): string[] =>
    runEvents([row(500, 'checkpoint', detail)], [], null, null).map(({ kind, text }) => `${kind}: ${text}`);
  expect(texts({ name: 'checkpoint-500' })).toEqual(['checkpoint: Checkpoint saved: checkpoint-500']);
  expect(texts({})).toEqual(['checkpoint: Checkpoint saved.']);
  expect(texts({ name: 5 })).toEqual(['checkpoint: Checkpoint saved.']);
  expect(texts({ name: 'a\u202eb\n' })).toEqual(['checkpoint: Checkpoint saved: a\ufffdb\ufffd']);
  expect(texts({ name: 'x'.repeat(500) })[0]).toHaveLength('checkpoint: Checkpoint saved: '.length + 80);
});
