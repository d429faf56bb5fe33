import { COLORS, formatInteger, hexOf, mixed, timeWords } from '../../../charts';
import type { PipelineOptions } from '../../../protocol/views.generated';
import { kindColor } from '../../../views/shared/span-kinds';
import type { Translate } from '../../../views/shared/translate';
import { MADE_SCHEDULES, scheduleTitle } from '../plan';
import type { IOperation, OperationKind } from './plan-lanes';

type Schedule = Required<PipelineOptions>['schedule'];

export const SCHEDULES: readonly Schedule[] = ['best', 'measured', ...MADE_SCHEDULES, 'search'];

/** A schedule by the name that people know. */
export function scheduleWords(schedule: string, t: Translate): string {
  switch (schedule) {
    case 'best':
      return t('best');
    case 'measured':
      return t('Measured order');
    case 'search':
      return t('Searched order');
    default:
      return scheduleTitle(schedule);
  }
}

/** Kinds in the order of the legend, each with the kind of span whose colour it has. */
const SPANS: Readonly<Record<OperationKind, string>> = {
  F: 'forward',
  R: 'user',
  B: 'backward',
  I: 'backward',
  W: 'wgrad',
  O: 'optimizer',
  S: 'send'
};

/** How far the colour of the last chunk is mixed with the page's. */
const MOST_MIXED = 0.5;

export const KINDS = Object.keys(SPANS) as OperationKind[];

/** The colour of an operation: that of its kind in a timeline; later chunks are paler. */
export function operationColor(
  { kind, chunk }: Pick<IOperation, 'chunk' | 'kind'>,
  chunks: number,
  isDark: boolean
): string {
  const color = kindColor(SPANS[kind], isDark);
  const share = chunks > 1 && chunk > 0 ? (MOST_MIXED * chunk) / (chunks - 1) : 0;
  return share === 0 ? color : hexOf(mixed([color, COLORS.ink[isDark ? 'dark' : 'light'].ground], share));
}

export function operationWords(kind: OperationKind, t: Translate): string {
  const words: Readonly<Record<OperationKind, string>> = {
    F: t('forward'),
    R: t('recomputed'),
    B: t('backward'),
    I: t('input gradient'),
    W: t('weight gradients'),
    O: t('optimizer'),
    S: t('new weights')
  };
  return words[kind];
}

/** An operation in a sentence: `forward of micro-batch 3, chunk 1, 2.4 ms`. */
export function pieceWords(
  piece: IOperation & { readonly count: number },
  chunks: number,
  t: Translate
): string {
  const took = timeWords(piece.end - piece.begin);
  if (piece.count > 1) {
    return t('%1 operations, %2', formatInteger(piece.count), took);
  }
  const kind = operationWords(piece.kind, t);
  const what = piece.microBatch < 0 ? kind : t('%1 of micro-batch %2', kind, formatInteger(piece.microBatch));
  return chunks > 1 && piece.microBatch >= 0
    ? t('%1, chunk %2, %3', what, formatInteger(piece.chunk), took)
    : t('%1, %2', what, took);
}

export const inkOf = (isDark: boolean): { line: string; text: string } => {
  const { muted: line, text } = COLORS.ink[isDark ? 'dark' : 'light'];
  return { line, text };
};
