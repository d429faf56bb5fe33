import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../charts/format';
import type { IRunEntry } from '../../tokens';
import type { IOpenRun } from '../shell/open-run';

/** How a run is marked in the list. The shape says it, the colour repeats it. */
export interface IRunMark {
  readonly kind: 'live' | 'perturbed' | 'paused' | 'stale' | 'recorded' | 'statistics' | 'gone';
  readonly symbol: '●' | '◆' | '‖' | '◐' | '○' | 'Σ' | '✕';
  /** In a word, also for screen readers. */
  readonly word: string;
  /** The same in full, where a word does not say it all. */
  readonly words: string;
  /** Right-hand text of the row, such as `step 1 240`. */
  readonly progress: string;
}

/**
 * Mark a run.
 * @param open - its models, if it is the chosen run: of others the list knows only whether they are live
 */
export function runMark(entry: IRunEntry, open: IOpenRun | null, trans: TranslationBundle): IRunMark {
  const source = open?.source ?? null;
  const step = source?.status?.step ?? entry.step ?? 0;
  const steps = trans._n('%2 step', '%2 steps', step, formatInteger(step));
  const at = trans.__('step %1', formatInteger(step));
  const mark = (
    kind: IRunMark['kind'],
    symbol: IRunMark['symbol'],
    word: string,
    progress: string,
    words = word
  ): IRunMark => ({ kind, symbol, word, words, progress });
  const stopped = (progress: string) =>
    mark('gone', '✕', trans.__('stopped'), progress, trans.__('stopped unexpectedly'));
  const finished = () => mark('recorded', '○', trans.__('finished'), at);
  if (entry.kind === 'statistics') {
    // How many steps there are is known once somebody looks.
    return mark('statistics', 'Σ', trans.__('statistics'), step === 0 ? '' : steps);
  }
  switch (entry.state) {
    case 'recorded':
      return mark('recorded', '○', trans.__('recorded'), steps);
    case 'gone':
      return stopped(steps);
    case 'live': {
      if (source === null && entry.stopped) {
        return stopped(at);
      }
      const { connection, status } = source ?? {};
      const kind = connection?.kind;
      const reason = connection?.kind === 'closed' ? connection.reason : null;
      if (
        status?.state === 'finished' ||
        reason === 'finished' ||
        (source === null && entry.ended !== null)
      ) {
        return finished();
      }
      if (status?.state === 'lost' || reason === 'gone') {
        return stopped(at);
      }
      if (kind === 'closed') {
        return mark('gone', '✕', trans.__('not connected'), at);
      }
      const armed = open !== null && open.perturb.armed !== null;
      if (open?.control.paused && kind !== 'reconnecting') {
        return mark('paused', '‖', armed ? trans.__('paused, perturbed') : trans.__('paused'), at);
      }
      if (kind === 'stale' || kind === 'reconnecting') {
        return mark('stale', '◐', trans.__('stale'), at);
      }
      return armed
        ? mark('perturbed', '◆', trans.__('perturbed'), at)
        : mark('live', '●', trans.__('live'), at);
    }
  }
}
