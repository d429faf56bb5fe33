import { isOver } from './is-over';
import type { IRunSource } from './source';

/** Whether a run takes changes now: it is live and its training has not ended. */
export function takesChanges(source: IRunSource): boolean {
  const { kind } = source.connection;
  return (kind === 'live' || kind === 'stale') && !isOver(source);
}
