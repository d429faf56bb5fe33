import type { IRunSource } from '../store/source';

/** Whether a run's training has ended, as far as is known here: it is recorded, or said so. */
export function isOver({ connection, status }: IRunSource): boolean {
  return (
    connection.kind === 'recorded' ||
    (connection.kind === 'closed' && connection.reason === 'finished') ||
    status?.state === 'finished' ||
    status?.state === 'lost'
  );
}

/** Whether a run takes changes now: it is live and its training has not ended. */
export function takesChanges(source: IRunSource): boolean {
  const { kind } = source.connection;
  return (kind === 'live' || kind === 'stale') && !isOver(source);
}
