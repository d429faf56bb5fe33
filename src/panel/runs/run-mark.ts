import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../charts/format';
import type { IRunEntry } from '../../tokens';
import type { IOpenRun } from '../shell/open-run';

/** How a run is marked in the list. The shape says it, the colour repeats it. */
export interface IRunMark {
  readonly kind: 'live' | 'perturbed' | 'paused' | 'stale' | 'recorded' | 'statistics' | 'gone';
  readonly symbol: '●' | '◆' | '‖' | '◐' | '○' | 'Σ' | '✕';
  /** In a word or two, also for screen readers. */
  readonly word: string;
  /** Right-hand text of the row, such as `step 1 240`. */
  readonly progress: string;
}

/**
 * Mark a run.
 *
 * @param entry - as the server lists it
 * @param open - its models, when it is the chosen run: of another run the list knows no more than whether it is live
 */
export function runMark(entry: IRunEntry, open: IOpenRun | null, trans: TranslationBundle): IRunMark {
  const source = open?.source ?? null;
  const step = source?.status?.step ?? entry.step ?? 0;
  const steps = trans._n('%2 step', '%2 steps', step, formatInteger(step));
  if (entry.kind === 'statistics') {
    // How many steps there are is known once somebody looks.
    const progress = step === 0 ? '' : steps;
    return { kind: 'statistics', symbol: 'Σ', word: trans.__('statistics'), progress };
  }
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
      const armed = open !== null && open.perturb.armed !== null;
      if (open?.control.paused && kind !== 'reconnecting') {
        const word = armed ? trans.__('paused, perturbed') : trans.__('paused');
        return { kind: 'paused', symbol: '‖', word, progress };
      }
      if (kind === 'stale' || kind === 'reconnecting') {
        return { kind: 'stale', symbol: '◐', word: trans.__('stale'), progress };
      }
      return armed
        ? { kind: 'perturbed', symbol: '◆', word: trans.__('perturbed'), progress }
        : { kind: 'live', symbol: '●', word: trans.__('live'), progress };
    }
  }
}
