import type { IRunEntry } from '../../tokens';

/** Whether a recording can be deleted: it exists, and no hub has it open. The server checks once more. */
export function isDeletable({ state, bytes }: IRunEntry): boolean {
  return state !== 'live' && bytes !== undefined;
}

/** Whether somebody wrote tags or notes to a run. */
export function isAnnotated({ tags = [], notes = '' }: IRunEntry): boolean {
  return tags.length > 0 || notes !== '';
}

/** What runs take on the disk, in bytes. */
export function bytesOf(runs: readonly IRunEntry[]): number {
  return runs.reduce((sum, { bytes = 0 }) => sum + bytes, 0);
}

/**
 * The recordings that go when only the newest are kept, newest first.
 * @param runs - In any order; those that cannot be deleted stay and count for nothing.
 * @param keep - How many recordings stay, those with tags or notes counted among them.
 */
export function beyondNewest(runs: readonly IRunEntry[], keep: number): IRunEntry[] {
  return runs
    .filter(isDeletable)
    .sort((a, b) => b.started - a.started)
    .slice(keep);
}
