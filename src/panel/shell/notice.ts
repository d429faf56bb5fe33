import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../charts/format';
import type { IRunEntry } from '../../tokens';
import { authorText } from './author-text';
import type { IOpenRun } from './open-run';
import { rankName, rankText, troubledRanks } from '../summary/ranks';
import type { ListState } from '../runs/runs-model';

/** What the one action of a notice does. */
export type NoticeAction =
  | 'retry'
  | 'reload-page'
  | 'copy-snippet'
  | 'open-recording'
  | 'reopen'
  | 'close-run'
  | 'trace-first'
  | 'open-scalars'
  | 'export-report'
  | 'show-ranks'
  | 'copy-update'
  | 'copy-enable'
  | 'copy-record';

/** A state of the panel in one sentence with one action. */
export interface INotice {
  readonly tone: 'plain' | 'busy' | 'warning' | 'error';
  readonly sentence: string;
  /** More for those who ask: the server's own words. */
  readonly detail?: string;
  /** Text that can be copied, shown as code. */
  readonly code?: string;
  readonly action: { readonly id: NoticeAction; readonly label: string } | null;
}

/** The two lines that bring a training script into the panel. */
export const SNIPPET = 'tracer = megalens.trace(model)\nwith tracer.step(): ...';

/** What turns on the recording in a training script. */
export const RECORD_SNIPPET = 'tracer = megalens.trace(model, record="megalens-runs")';

/** What switches the server's side on. */
export const ENABLE_COMMAND = 'jupyter server extension enable megalens.server';

/** What updates this side. */
export const UPDATE_COMMAND = 'pip install --upgrade megalens';

/** What stands above the runs: the server does not answer, refuses, or knows no run yet. Null when there are runs. */
export function listNotice(
  state: ListState,
  entries: readonly IRunEntry[],
  trans: TranslationBundle
): INotice | null {
  switch (state.kind) {
    case 'loading':
      return { tone: 'busy', sentence: trans.__('Looking for runs…'), action: null };
    case 'offline':
      return {
        tone: 'error',
        sentence: trans.__(
          'The Jupyter server does not answer. Training is not affected; this list comes back by itself.'
        ),
        detail: state.message,
        action: { id: 'retry', label: trans.__('Try again now') }
      };
    case 'missing':
      return {
        tone: 'error',
        sentence: trans.__(
          'This Jupyter server runs without the Megalens server extension. Switch it on and start the server again.'
        ),
        code: ENABLE_COMMAND,
        action: { id: 'copy-enable', label: trans.__('Copy the command') }
      };
    case 'forbidden':
      return {
        tone: 'error',
        sentence: trans.__(
          'This session may not see runs. Its login may have expired; training is not affected.'
        ),
        detail: state.message,
        action: { id: 'reload-page', label: trans.__('Reload the page to log in') }
      };
    case 'ready':
      return entries.length > 0
        ? null
        : {
            tone: 'plain',
            sentence: trans.__(
              'No run yet. Put these two lines into a training script, the second around each optimizer step, and it appears here by itself.'
            ),
            code: SNIPPET,
            action: { id: 'copy-snippet', label: trans.__('Copy the two lines') }
          };
  }
}

/** What the chosen run's state asks to be told, or null when all is as it should be. */
export function runNotice(
  open: Pick<IOpenRun, 'source' | 'summary' | 'control'>,
  entry: IRunEntry | null,
  trans: TranslationBundle
): INotice | null {
  const { source, summary, control } = open;
  const { connection, status, hello } = source;
  const step = formatInteger(status?.step ?? 0);
  switch (connection.kind) {
    case 'connecting':
      return {
        tone: 'busy',
        sentence: trans.__('Connecting to %1…', source.name),
        action: { id: 'close-run', label: trans.__('Cancel') }
      };
    case 'reconnecting':
      return {
        tone: 'warning',
        sentence: trans.__(
          'The connection broke and is being made again (attempt %1). What was missed is caught up.',
          connection.attempt
        ),
        detail: connection.message,
        action: { id: 'close-run', label: trans.__('Stop trying') }
      };
    case 'closed':
      return closedNotice(connection.reason, connection.message, step, entry, trans);
    case 'recorded':
      return null;
    case 'stale':
    case 'live':
      break;
  }
  if (status?.state === 'finished' || status?.state === 'lost') {
    return endedNotice(status.state, step, entry, trans);
  }
  if (hello === null || hello.model === null) {
    return {
      tone: 'busy',
      sentence: trans.__('The hub is up and waits for a training process to join it.'),
      action: { id: 'copy-snippet', label: trans.__('Copy the two lines for a script') }
    };
  }
  const troubled = ranksNotice(open, trans);
  if (troubled !== null) {
    return troubled;
  }
  if (control.paused) {
    return pausedNotice(open, trans);
  }
  if (Object.keys(hello.config.flags).length === 0 && hello.statistics === undefined) {
    return {
      tone: 'plain',
      sentence: trans.__('Connected, and nothing is traced yet. Tick a tensor below and apply.'),
      action: { id: 'trace-first', label: trans.__('Tick the first one') }
    };
  }
  // One that takes long is told like any other pause.
  if (status?.state === 'idle' && status.step === 0 && connection.kind === 'live') {
    return {
      tone: 'busy',
      sentence: trans.__('The training has joined and takes its first step. Charts begin with it.'),
      action: null
    };
  }
  if (status?.state === 'idle') {
    return {
      tone: 'plain',
      sentence: trans.__('Training pauses after step %1. Charts go on when the next step comes.', step),
      action: { id: 'open-scalars', label: trans.__('Open the scalars so far') }
    };
  }
  if (connection.kind === 'stale') {
    return {
      tone: 'warning',
      sentence: trans.__(
        'No frame for %1 s. What you see is from step %2.',
        formatInteger(Math.max(3, summary.staleFor() ?? 3)),
        step
      ),
      action: { id: 'open-scalars', label: trans.__('Open the scalars so far') }
    };
  }
  return null;
}

/** A process that is stopped, frozen or gone: nothing else explains as much. */
function ranksNotice({ source }: Pick<IOpenRun, 'source'>, trans: TranslationBundle): INotice | null {
  const [first, ...more] = troubledRanks(source.status);
  if (first === undefined) {
    return null;
  }
  const { layout = null } = source.hello ?? {};
  const alone = (layout?.world_size ?? 1) === 1;
  const place = layout?.ranks?.find(({ rank }) => rank === first.rank) ?? null;
  const name = alone
    ? trans.__('The training process')
    : rankName(first.rank, first, place).replace(/^./, letter => letter.toUpperCase());
  const others =
    more.length === 0
      ? ''
      : ` ${trans._n('So is %2 other.', 'So are %2 others.', more.length, formatInteger(more.length))}`;
  return {
    tone: 'warning',
    sentence: `${name} ${rankText(first, trans)}.${others}`,
    action: alone
      ? { id: 'open-scalars', label: trans.__('Open the scalars so far') }
      : { id: 'show-ranks', label: trans.__('Show every rank') }
  };
}

/** Who made the training wait; the buttons under it let it go on. */
function pausedNotice(
  { source, control }: Pick<IOpenRun, 'source' | 'control'>,
  trans: TranslationBundle
): INotice {
  const who = authorText(control.author('mode'), trans);
  const step = formatInteger(source.status?.step ?? 0);
  return {
    tone: 'warning',
    sentence:
      who === ''
        ? trans.__('Training was paused and waits after step %1.', step)
        : trans.__('Training was paused %1 and waits after step %2.', who, step),
    action: control.allows('pause')
      ? null
      : { id: 'open-scalars', label: trans.__('Open the scalars so far') }
  };
}

function closedNotice(
  reason: 'finished' | 'gone' | 'version' | 'forbidden' | 'disposed',
  message: string,
  step: string,
  entry: IRunEntry | null,
  trans: TranslationBundle
): INotice | null {
  switch (reason) {
    case 'finished':
      return endedNotice('finished', step, entry, trans);
    case 'gone':
      return {
        tone: 'warning',
        sentence: trans.__(
          'The hub of this run is gone after step %1. Training itself may still go on.',
          step
        ),
        detail: message,
        action: recordingAction(entry, trans)
      };
    case 'version':
      return {
        tone: 'error',
        sentence: trans.__('This run speaks another version of the protocol, so it cannot be shown here.'),
        detail: message,
        code: UPDATE_COMMAND,
        action: { id: 'copy-update', label: trans.__('Copy the update command') }
      };
    case 'forbidden':
      return {
        tone: 'error',
        sentence: trans.__('This session may not look at this run. Its login may have expired.'),
        detail: message,
        action: { id: 'reload-page', label: trans.__('Reload the page to log in') }
      };
    case 'disposed':
      return null;
  }
}

function endedNotice(
  state: 'finished' | 'lost',
  step: string,
  entry: IRunEntry | null,
  trans: TranslationBundle
): INotice {
  const recorded = entry !== null && entry.state !== 'live' && entry.folder !== null;
  return state === 'finished'
    ? {
        tone: 'plain',
        sentence: trans.__('Training finished at step %1.', step),
        action: recorded
          ? recordingAction(entry, trans)
          : { id: 'export-report', label: trans.__('Export a report') }
      }
    : {
        tone: 'warning',
        sentence: trans.__('The training process ended without a goodbye after step %1.', step),
        action: recorded
          ? recordingAction(entry, trans)
          : { id: 'open-scalars', label: trans.__('Open the scalars so far') }
      };
}

function recordingAction(entry: IRunEntry | null, trans: TranslationBundle): INotice['action'] {
  if (entry !== null && entry.state !== 'live') {
    return { id: 'open-recording', label: trans.__('Open the recording') };
  }
  return entry === null
    ? { id: 'copy-record', label: trans.__('Copy the line that records the next run') }
    : { id: 'reopen', label: trans.__('Connect again') };
}
