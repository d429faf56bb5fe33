import { formatBytes, formatInteger } from '../../charts';
import type { FlagInfo, FlagSetting, Hello, Pass, Phase } from '../../protocol/messages.generated';
import { own } from '../../protocol/records';
import { isOver, type IRunSource } from '../../store/source';
import { flagInfo, flagWords, phaseWords, titleWords } from './describe';
import { faultSentence, faultText } from './fault-text';
import { estimateBytes, firstSetting, FRAME_BYTES, positionsOf } from './forecast';
import type { Translate } from './translate';

/** Most flags that a sentence names, and most letters of a name that is none. */
const MOST_FLAGS = 24;
const MOST_LETTERS = 100;

/** Why there is no picture, or what to know about it: one sentence and one action. */
export interface IState {
  kind: 'loading' | 'empty' | 'finished' | 'stale' | 'disconnected' | 'error';
  sentence: string;
  action: { label: string; run: () => void | Promise<void> };
  /** Other ways on. */
  more?: readonly IState['action'][];
  /** Lines to copy into a script. */
  code?: string;
}

/** Say why there is nothing to draw, and what to do about it. */
export function emptyState(sentence: string, label: string, run: () => void | Promise<void>): IState {
  return { kind: 'empty', sentence, action: { label, run } };
}

/** The action that looks once more whether there is something. */
export const retryAction = ({ retry }: Pick<IStateActions, 'retry'>, t: Translate): IState['action'] => ({
  label: t('Check again'),
  run: () => retry()
});

/** Say why there is nothing to draw, which only time can change. */
export const nothingYet = (
  sentence: string,
  actions: Pick<IStateActions, 'retry'>,
  t: Translate
): IState => ({
  kind: 'empty',
  sentence,
  action: retryAction(actions, t)
});

/** Say why there is nothing to draw, and which lines in a cell or a script change that. */
export function snippetState(
  sentence: string,
  code: string,
  actions: Pick<IStateActions, 'copy' | 'retry'>,
  t: Translate,
  first: readonly IState['action'][] = []
): IState {
  const label = code.includes('\n') ? t('Copy these lines') : t('Copy this line');
  const copy = { label, run: () => actions.copy(code) };
  const [action = copy, ...more] = [...first, copy, retryAction(actions, t)];
  return { kind: 'empty', sentence, code, action, more };
}

export interface IStateActions {
  retry(): void;
  cancel(): void;
  /** Put every option but what the view is about to its default, and draw again. */
  reset(): void;
  copyCode(): void | Promise<void>;
  copy(text: string): void | Promise<void>;
  /** Save text as a file of a MIME type. */
  save(name: string, type: string, text: string): void;
  chooseFlag?(flag: string): void;
  openRecording?: (() => void) | undefined;
}

/** The same actions of a view that must forget what it read before it tries again. */
export const retryingAfter = (actions: IStateActions, forget: () => void): IStateActions => ({
  ...actions,
  retry: () => {
    forget();
    actions.retry();
  }
});

const nothing = (): void => undefined;

/** Of what stands where nothing can be pressed. */
export const NO_ACTIONS: IStateActions = {
  retry: nothing,
  cancel: nothing,
  reset: nothing,
  copy: nothing,
  copyCode: nothing,
  save: nothing
};

/**
 * Whether an error is none of those that rooms throw with a sentence for a person, but a mistake that a value
 * brought to light.
 */
function isSurprise(reason: unknown): boolean {
  return [TypeError, RangeError, ReferenceError, SyntaxError, URIError].some(kind => reason instanceof kind);
}

/** Say that an answer is waited for. */
export function readingState(name: string, actions: IStateActions, t: Translate): IState {
  return {
    kind: 'loading',
    sentence: t('Reading steps of %1…', name),
    action: { label: t('Cancel'), run: () => actions.cancel() }
  };
}

/** Say of a picture that the next one does not come. */
export function lateState(seconds: number, redraw: () => void, t: Translate): IState {
  return {
    kind: 'stale',
    sentence: t('This picture is old: the next one takes more than %1 s.', seconds),
    action: { label: t('Draw anew'), run: redraw }
  };
}

/** Describe a run and the connection to it when that is worth a word. */
export function connectionState(
  source: Pick<IRunSource, 'connection' | 'hello' | 'name' | 'reading' | 'status'>,
  actions: IStateActions,
  t: Translate
): IState | null {
  const { connection, name, reading, status } = source;
  const retry = retryAction(actions, t);
  const keep = actions.openRecording
    ? { label: t('Open the recording'), run: actions.openRecording }
    : { label: t('Copy as code'), run: () => actions.copyCode() };
  const step = status === null ? null : formatInteger(status.step);
  const isLab = (source.hello?.phase ?? 'train') !== 'train';
  switch (connection.kind) {
    case 'recorded':
      return null;
    case 'live':
      if (reading) {
        const sentence = t('Reading steps %1 to %2…', formatInteger(reading[0]), formatInteger(reading[1]));
        return { kind: 'loading', sentence, action: retry };
      }
      return isOver(source) ? endedState(isLab, status?.state === 'lost', step, keep, t) : null;
    case 'connecting':
      return { kind: 'loading', sentence: t('Connecting to %1…', name), action: retry };
    case 'stale': {
      if (isOver(source)) {
        return endedState(isLab, status?.state === 'lost', step, keep, t);
      }
      const seconds = Math.max(3, Math.round((Date.now() - connection.since) / 1000));
      return {
        kind: 'stale',
        sentence: isLab
          ? t('Nothing is being written. Ask for a text.')
          : t('No frame for %1 s: training is paused or its steps are long.', formatInteger(seconds)),
        action: retry
      };
    }
    case 'reconnecting':
      return {
        kind: 'disconnected',
        sentence: t('The link to %1 broke; try %2 to come back is under way.', name, connection.attempt),
        action: retry
      };
    case 'closed':
      switch (connection.reason) {
        case 'finished':
          return endedState(isLab, false, step, keep, t);
        case 'gone':
          return {
            kind: 'disconnected',
            sentence: t('The hub of %1 is gone; what had arrived is still here.', name),
            action: keep
          };
        case 'version':
        case 'forbidden':
        case 'unreadable':
          return { kind: 'error', sentence: connection.message, action: keep };
        case 'disposed':
          return { kind: 'disconnected', sentence: t('This view was detached from %1.', name), action: keep };
      }
  }
}

/** Say that a training has ended, and at which step; or a lab, whose steps are passes of its model. */
function endedState(
  isLab: boolean,
  lost: boolean,
  step: string | null,
  action: IState['action'],
  t: Translate
): IState {
  if (lost) {
    const sentence = isLab
      ? t('The process of the lab stopped unexpectedly.')
      : t('The training process stopped unexpectedly after step %1.', step ?? '?');
    return { kind: 'disconnected', sentence, action };
  }
  const sentence = isLab
    ? t('The lab has ended.')
    : step === null
      ? t('The training has finished.')
      : t('Training finished at step %1.', step);
  return { kind: 'finished', sentence, action };
}

/** Say that the run has not told yet what it traces. */
export const unheardState = (
  { name }: Pick<IRunSource, 'name'>,
  actions: Pick<IStateActions, 'retry'>,
  t: Translate
): IState => ({
  kind: 'loading',
  sentence: t('Waiting for %1 to say what it traces…', name),
  action: retryAction(actions, t)
});

/** Say why a flag has no rows and offer what helps. */
export async function emptyFlag(
  source: IRunSource,
  flag: string,
  phase: Phase,
  actions: IStateActions,
  t: Translate,
  pass: Pass = 'forward'
): Promise<IState> {
  const { hello } = source;
  const info = flagInfo(hello, flag);
  const title = flagWords(hello, flag, null, t, pass);
  const retry = retryAction(actions, t);
  const other = hello?.flags.find(
    each => each.layers.length > 0 && own(hello.config.flags, each.name) !== undefined
  );
  const choose =
    other && other.name !== flag && actions.chooseFlag
      ? { label: t('Show %1', other.title), run: () => actions.chooseFlag?.(other.name) }
      : retry;
  if (hello === null) {
    return unheardState(source, actions, t);
  }
  if (info === undefined) {
    return { kind: 'empty', sentence: unknownFlag(hello, flag, t), action: choose };
  }
  if (info.layers.length === 0) {
    const name = titleWords(info.title, t);
    const sentence = info.reason
      ? t('This model has no %1: %2', name, info.reason)
      : t('This model has no %1.', name);
    return { kind: 'empty', sentence, action: choose };
  }
  const open = source.connection.kind === 'live' || source.connection.kind === 'stale';
  const setting = own(hello.config.flags, flag);
  const traced =
    setting !== undefined &&
    (pass === 'forward' || setting.passes?.includes(pass)) &&
    (setting.phases ?? ['train']).includes(phase);
  if (traced && open) {
    return nothingYet(
      t('%1 is traced; its first %2 step has not arrived yet.', title, phaseWords(t)[phase]),
      actions,
      t
    );
  }
  if (!open) {
    return {
      kind: 'empty',
      sentence: t('This run holds no %2 step of %1.', title, phaseWords(t)[phase]),
      action: choose
    };
  }
  const sentence =
    setting !== undefined && !(setting.phases ?? ['train']).includes(phase)
      ? t('%1 is not traced in phase %2.', title, phaseWords(t)[phase])
      : t('%1 is not traced.', title);
  const action = traceAction(source, info, phase, actions, t, pass);
  return action === null ? nothingYet(sentence, actions, t) : { kind: 'empty', sentence, action };
}

/** Have a flag traced, at which cost; null where the run takes no change or has no compressor for it. */
export function traceAction(
  source: Pick<IRunSource, 'configure' | 'connection' | 'hello' | 'status'>,
  info: FlagInfo,
  phase: Phase,
  actions: Pick<IStateActions, 'retry'>,
  t: Translate,
  pass: Pass = 'forward'
): IState['action'] | null {
  const { flags = [], compressors = [], config } = source.hello ?? {};
  const before = own(config?.flags ?? {}, info.name);
  const first = before ?? firstSetting(info, compressors, phase);
  if (first === null || !['live', 'stale'].includes(source.connection.kind)) {
    return null;
  }
  const phases: readonly Phase[] = before === undefined ? [] : (before.phases ?? ['train']);
  const setting: FlagSetting = {
    ...first,
    ...(phases.includes(phase) ? {} : { phases: [...phases, phase] }),
    ...(pass === 'backward' ? { passes: ['forward', 'backward'] } : {})
  };
  const bytes = estimateBytes(info, setting, positionsOf(flags));
  const name = titleWords(info.title, t);
  const label = phase === 'generate' ? t('Trace %1 while generating', name) : t('Trace %1', name);
  return {
    label: bytes === null ? label : `${label}, ${sizeWords(bytes, source, t)}`,
    run: async () => {
      await source.configure({ flags: { [info.name]: setting } });
      actions.retry();
    }
  };
}

/**
 * What tracing something would send: of a step where the run has counted its micro-batches.
 *
 * @param bytes - Of a micro-batch; null where that is not known.
 */
export function sizeWords(
  bytes: number | null,
  { status }: Pick<IRunSource, 'status'>,
  t: Translate
): string {
  if (bytes === null) {
    return t('size known after its first step');
  }
  const microBatches = status?.micro_batches;
  const size = formatBytes((microBatches ?? 1) * (bytes + FRAME_BYTES));
  return microBatches === undefined ? t('≈ %1 a micro-batch', size) : t('≈ %1 a step', size);
}

/** Say which flags there are where one is named that is none. */
function unknownFlag({ flags }: Hello, flag: string, t: Translate): string {
  const names = flags.slice(0, MOST_FLAGS).map(({ name }) => name);
  const [listed, more] = [names.join(', '), flags.length - names.length];
  const has = more > 0 ? t('It has %1, and %2 more.', listed, more) : t('It has %1.', listed);
  const none = t("This run has no flag '%1'.", flag.slice(0, MOST_LETTERS));
  return listed ? `${none} ${has}` : none;
}

export function errorState(reason: unknown, actions: IStateActions, t: Translate): IState {
  const action = { label: t('Try again'), run: () => actions.retry() };
  if (!isSurprise(reason)) {
    return { kind: 'error', sentence: faultSentence(reason), action };
  }
  const sentence = t(
    'This view could not be drawn: %1. Its run is not affected. Reset tries again with the default options.',
    faultSentence(reason)
  );
  const reset = { label: t('Reset'), run: () => actions.reset() };
  const copy = { label: t('Copy details'), run: () => actions.copy(faultText('view', reason)) };
  return { kind: 'error', sentence, action, more: [reset, copy] };
}
