import type { TranslationBundle } from '@jupyterlab/translation';
import { formatInteger } from '../../charts/format';
import type { CloseReason } from '../../client/pending-changes';
import type { IRunEntry } from '../../tokens';
import { rankName, rankText, troubledRanks } from '../summary/ranks';
import type { ListState } from '../runs/runs-model';
import type { IAuthor } from '../summary/control-model';
import type { IOpenRun } from './open-run';

/** Who and when, such as `by Ada at 14:03:20` or `by you at 14:03:20`; empty if unknown on this page. */
export function authorText(author: IAuthor | null, trans: TranslationBundle): string {
  if (author === null) {
    return '';
  }
  const who = author.here ? trans.__('you') : author.who === '' ? trans.__('another viewer') : author.who;
  return author.time === null
    ? trans.__('by %1', who)
    : trans.__('by %1 at %2', who, new Date(author.time * 1000).toLocaleTimeString());
}

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

function notice(
  tone: INotice['tone'],
  sentence: string,
  action: readonly [NoticeAction, string] | null,
  more: Pick<INotice, 'detail' | 'code'> = {}
): INotice {
  return { tone, sentence, ...more, action: action && { id: action[0], label: action[1] } };
}

/** What stands above the runs: no answer, a refusal, or no run yet. Null when there are runs. */
export function listNotice(
  state: ListState,
  entries: readonly IRunEntry[],
  trans: TranslationBundle
): INotice | null {
  switch (state.kind) {
    case 'loading':
      return notice('busy', trans.__('Looking for runs…'), null);
    case 'offline':
      return notice(
        'error',
        trans.__(
          'The Jupyter server does not answer. Training is not affected; this list comes back by itself.'
        ),
        ['retry', trans.__('Try again now')],
        { detail: state.message }
      );
    case 'missing':
      return notice(
        'error',
        trans.__(
          'This Jupyter server runs without the Megalens server extension. Switch it on and start the server again.'
        ),
        ['copy-enable', trans.__('Copy the command')],
        { code: ENABLE_COMMAND }
      );
    case 'forbidden':
      return notice(
        'error',
        trans.__('This session may not see runs. Its login may have expired; training is not affected.'),
        ['reload-page', trans.__('Reload the page to log in')],
        { detail: state.message }
      );
    case 'ready':
      return entries.length > 0
        ? null
        : notice(
            'plain',
            trans.__(
              'No run yet. Put these two lines into a training script, the second around each optimizer step, and it appears here by itself.'
            ),
            ['copy-snippet', trans.__('Copy the two lines')],
            { code: SNIPPET }
          );
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
  const isLab = (hello?.phase ?? 'train') !== 'train';
  switch (connection.kind) {
    case 'connecting':
      return notice('busy', trans.__('Connecting to %1…', source.name), ['close-run', trans.__('Cancel')]);
    case 'reconnecting':
      return notice(
        'warning',
        trans.__(
          'The connection was lost. Connecting again (attempt %1); what was missed meanwhile will be there.',
          connection.attempt
        ),
        ['close-run', trans.__('Stop trying')],
        { detail: connection.message }
      );
    case 'closed':
      return connection.reason === 'finished'
        ? endedNotice('finished', isLab, step, entry, trans)
        : closedNotice(connection.reason, connection.message, step, entry, trans);
    case 'recorded':
      return null;
    case 'stale':
    case 'live':
      break;
  }
  if (status?.state === 'finished' || status?.state === 'lost') {
    return endedNotice(status.state, isLab, step, entry, trans);
  }
  if (hello === null || hello.model === null) {
    return notice('busy', trans.__('The hub is up and waits for a training process to join it.'), [
      'copy-snippet',
      trans.__('Copy the two lines for a script')
    ]);
  }
  const troubled = ranksNotice(open, trans);
  if (troubled !== null) {
    return troubled;
  }
  if (control.paused) {
    return pausedNotice(open, trans);
  }
  if (Object.keys(hello.config.flags).length === 0 && hello.statistics === undefined) {
    return notice('plain', trans.__('Connected, and nothing is traced yet. Tick a tensor below and apply.'), [
      'trace-first',
      trans.__('Tick the first one')
    ]);
  }
  if (isLab && (status?.state === 'idle' || connection.kind === 'stale')) {
    return notice('plain', trans.__('The model writes when it is asked, in the view Tokens.'), null);
  }
  // One that takes long is reported like any other pause.
  if (status?.state === 'idle' && status.step === 0 && connection.kind === 'live') {
    return notice(
      'busy',
      trans.__('The training has joined and takes its first step. Charts begin with it.'),
      null
    );
  }
  if (status?.state === 'idle') {
    return notice(
      'plain',
      trans.__('Training pauses after step %1. Charts go on when the next step comes.', step),
      ['open-scalars', trans.__('Open the scalars so far')]
    );
  }
  if (connection.kind === 'stale') {
    return notice(
      'warning',
      trans.__(
        'No new data for %1 s. What you see is from step %2.',
        formatInteger(Math.max(3, summary.staleFor() ?? 3)),
        step
      ),
      ['open-scalars', trans.__('Open the scalars so far')]
    );
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
  const coordinates = layout?.ranks?.find(({ rank }) => rank === first.rank) ?? null;
  const name = alone
    ? trans.__('The training process')
    : rankName(first.rank, first, coordinates).replace(/^./, letter => letter.toUpperCase());
  const others =
    more.length === 0
      ? ''
      : ` ${trans._n('So is %2 other.', 'So are %2 others.', more.length, formatInteger(more.length))}`;
  return notice(
    'warning',
    `${name} ${rankText(first, trans)}.${others}`,
    alone
      ? ['open-scalars', trans.__('Open the scalars so far')]
      : ['show-ranks', trans.__('Show every rank')]
  );
}

/** Who made the training wait; the buttons under it let it go on. */
function pausedNotice(
  { source, control }: Pick<IOpenRun, 'source' | 'control'>,
  trans: TranslationBundle
): INotice {
  const who = authorText(control.author('mode'), trans);
  const step = formatInteger(source.status?.step ?? 0);
  return notice(
    'warning',
    who === ''
      ? trans.__('Training was paused and waits after step %1.', step)
      : trans.__('Training was paused %1 and waits after step %2.', who, step),
    control.allows('pause') ? null : ['open-scalars', trans.__('Open the scalars so far')]
  );
}

function closedNotice(
  reason: Exclude<CloseReason, 'finished'>,
  message: string,
  step: string,
  entry: IRunEntry | null,
  trans: TranslationBundle
): INotice | null {
  switch (reason) {
    case 'gone':
      return notice(
        'warning',
        trans.__('The hub of this run is gone after step %1. Training itself may still go on.', step),
        recordingAction(entry, trans),
        { detail: message }
      );
    case 'version':
      return notice(
        'error',
        trans.__('This run speaks another version of the protocol, so it cannot be shown here.'),
        ['copy-update', trans.__('Copy the update command')],
        { detail: message, code: UPDATE_COMMAND }
      );
    case 'forbidden':
      return notice(
        'error',
        trans.__('This session may not look at this run. Its login may have expired.'),
        ['reload-page', trans.__('Reload the page to log in')],
        { detail: message }
      );
    case 'unreadable':
      return notice(
        'error',
        trans.__(
          'What the hub of this run sends cannot be read, so the link was closed. Training is not affected, and other runs can be opened.'
        ),
        ['reopen', trans.__('Connect again')],
        { detail: message }
      );
    case 'disposed':
      return null;
  }
}

function endedNotice(
  state: 'finished' | 'lost',
  isLab: boolean,
  step: string,
  entry: IRunEntry | null,
  trans: TranslationBundle
): INotice {
  const recorded = entry !== null && entry.state !== 'live' && entry.folder !== null;
  return state === 'finished'
    ? notice(
        'plain',
        isLab ? trans.__('The lab has ended.') : trans.__('Training finished at step %1.', step),
        recorded ? recordingAction(entry, trans) : ['export-report', trans.__('Export a report')]
      )
    : notice(
        'warning',
        isLab
          ? trans.__('The process of the lab stopped unexpectedly.')
          : trans.__('The training process stopped unexpectedly after step %1.', step),
        recorded ? recordingAction(entry, trans) : ['open-scalars', trans.__('Open the scalars so far')]
      );
}

function recordingAction(entry: IRunEntry | null, trans: TranslationBundle): readonly [NoticeAction, string] {
  if (entry !== null && entry.state !== 'live') {
    return ['open-recording', trans.__('Open the recording')];
  }
  return entry === null
    ? ['copy-record', trans.__('Copy the line that records the next run')]
    : ['reopen', trans.__('Connect again')];
}
