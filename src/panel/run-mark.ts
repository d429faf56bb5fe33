import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../charts/format';
import type { IRunSource } from '../store/source';
import type { IRunEntry } from '../tokens';

/** How a run is marked in the list. The shape says it, the colour repeats it. */
export interface IRunMark {
  readonly kind: 'live' | 'stale' | 'recorded' | 'gone';
  readonly symbol: '●' | '◐' | '○' | '✕';
  /** In a word or two, also for screen readers. */
  readonly word: string;
  /** Right-hand text of the row, such as `step 1 240`. */
  readonly progress: string;
}

/**
 * Mark a run.
 *
 * @param entry - as the server lists it
 * @param source - its source, when it is the chosen run
 */
export function runMark(entry: IRunEntry, source: IRunSource | null, trans: TranslationBundle): IRunMark {
  const step = source?.status?.step ?? entry.step ?? 0;
  const steps = trans._n('%1 step', '%1 steps', step).replace('%1', formatInteger(step));
  switch (entry.state) {
    case 'recorded':
      return { kind: 'recorded', symbol: '○', word: trans.__('recorded'), progress: steps };
    case 'gone':
      return { kind: 'gone', symbol: '✕', word: trans.__('gone'), progress: steps };
    case 'live': {
      const progress = trans.__('step %1', formatInteger(step));
      const kind = source?.connection.kind;
      if (kind === 'closed') {
        const state = source?.status?.state;
        return state === 'finished'
          ? { kind: 'recorded', symbol: '○', word: trans.__('finished'), progress }
          : { kind: 'gone', symbol: '✕', word: trans.__('gone'), progress };
      }
      if (source?.status?.state === 'finished') {
        return { kind: 'recorded', symbol: '○', word: trans.__('finished'), progress };
      }
      return kind === 'stale' || kind === 'reconnecting'
        ? { kind: 'stale', symbol: '◐', word: trans.__('stale'), progress }
        : { kind: 'live', symbol: '●', word: trans.__('live'), progress };
    }
  }
}
