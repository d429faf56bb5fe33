import { formatNumber } from '../../../../../charts';
import { familyTitle } from '../../plan/plan-split';
import type { ISplitPlanned } from '../../plan/split-planned';
import type { SplitOptions } from '../../../../../protocol/views.generated';
import type { INote } from '../../../../../views/shared/content';
import type { Translate } from '../../../../../views/shared/translate';
import type { ISplitRead } from './split-reader';
import { layoutWords } from './split-words';

type Layout = Required<SplitOptions>['layout'];

/** What the notes ask of their view. */
export interface ISplitVerdictActions {
  readonly t: Translate;
  readonly copyCode: () => void;
  /** Draw a layout. */
  readonly show: (layout: Layout) => void;
}

/** Whether a split is worth it, by how much, and what it costs if that is wrong; where the peer's stands. */
export function splitVerdictNotes(
  { plan }: ISplitRead,
  drawn: ISplitPlanned,
  { t, copyCode, show }: ISplitVerdictActions
): INote[] {
  const { isWorthIt, other, split } = plan.verdict;
  const wanted = isWorthIt ? split : other;
  const action =
    wanted === null || wanted.layout.family === drawn.layout.family
      ? { label: t('Copy as code'), run: copyCode }
      : {
          label: t('Show %1', familyTitle(wanted.layout.family)),
          run: () => show(wanted.layout.family)
        };
  return [{ text: verdictWords(plan.verdict, t), tone: 'finding', action }];
}

/** The verdict in sentences. */
export function verdictWords(
  { isWorthIt, split, other, percent, lowPercent, highPercent, regretPercent }: ISplitRead['plan']['verdict'],
  t: Translate
): string {
  if (split === null || other === null) {
    return split !== null
      ? t('Split: nothing else fits in the memory of these devices.')
      : t('Do not split: no split fits on these devices.');
  }
  const by = t('%1 % a step (95 %: %2 to %3)', signed(percent), signed(lowPercent), signed(highPercent));
  const against = layoutWords(other, t);
  const first = isWorthIt
    ? t('Split: %1 against %2.', by, against)
    : highPercent > 0 && lowPercent < 0
      ? t('Do not split: %1 against %2 is no more than the times may be off.', by, against)
      : t('Do not split: the best split takes %1 against %2.', by, against);
  return regretPercent >= 0.05
    ? `${first} ${t('Where the times are otherwise this costs %1 % on average.', formatNumber(regretPercent, 2))}`
    : first;
}

const signed = (value: number): string =>
  `${value < 0 ? '−' : '+'}${formatNumber(Math.abs(value), Math.abs(value) < 10 ? 2 : 3)}`;
