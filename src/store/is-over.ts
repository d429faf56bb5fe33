import type { IRunSource } from './source';

/** Whether a run's training has ended, as far as is known here: it is recorded, or said so. */
export function isOver({ connection, status }: Pick<IRunSource, 'connection' | 'status'>): boolean {
  return (
    connection.kind === 'recorded' ||
    (connection.kind === 'closed' && connection.reason === 'finished') ||
    status?.state === 'finished' ||
    status?.state === 'lost'
  );
}
