import type { ISelection, Statistic } from '../../aggregate';
import { isSelective, layoutOf } from '../../aggregate';
import { formatInteger } from '../../charts';
import { inRanges } from '../../protocol/ranges';
import type { TrendOptions } from '../../protocol/views.generated';
import type { ITensorRow } from '../../store/source';
import { listWords } from '../shared/layers';
import type { Translate } from '../shared/translate';

/** Name a statistic in words. */
export function statisticWords(statistic: Statistic, t: Translate): string {
  const words: Record<Statistic, string> = {
    mean: t('mean'),
    std: t('standard deviation'),
    min: t('minimum'),
    max: t('maximum'),
    rms: t('rms'),
    abs_mean: t('mean magnitude'),
    nonfinite: t('non-finite values')
  };
  return words[statistic];
}

/** Say which values enter a statistic where that is not all of them. */
export function selectionWords(row: ITensorRow | undefined, selection: ISelection, t: Translate): string[] {
  if (row === undefined || !isSelective(row, selection)) {
    return [];
  }
  const { hasPositions, length, vectors } = layoutOf(row, selection.axes);
  const lines: string[] = [];
  if (vectors > 1) {
    const vector = Math.min(selection.vector, vectors - 1);
    lines.push(t('Vector %1 of %2, counted from 0.', vector, vectors));
  }
  if (selection.positions.trim() !== 'all') {
    const all = Array.from({ length }, (_, at) => at);
    const taken = inRanges(selection.positions, all);
    lines.push(
      hasPositions
        ? taken.length === 1
          ? t('Position %1 of %2, counted from 0.', listWords(taken), formatInteger(length))
          : t('Positions %1 of %2, counted from 0.', listWords(taken), formatInteger(length))
        : t('These tensors have no position axis; all of their values enter.')
    );
  }
  return lines;
}

/**
 * Say what a band is, or why there is none.
 *
 * @param units How many positions and samples it is over at the newest step.
 */
export function intervalWords(
  { interval, statistic, kind }: Pick<Required<TrendOptions>, 'interval' | 'statistic' | 'kind'>,
  units: number,
  t: Translate
): string[] {
  if (interval === 'none') {
    return [];
  }
  if (statistic !== 'mean' || kind !== 'lines') {
    return [t('Bands are about the lines of a mean; choose mean and lines for one.')];
  }
  const count = formatInteger(units);
  if (interval === 'std') {
    return [t('Bands: one standard deviation over positions and samples (n = %1).', count)];
  }
  return units < 2
    ? [t('One position or sample has no confidence interval.')]
    : [
        t(
          'Bands: 95 % confidence interval of the mean, ± t · s / √n over positions and samples (n = %1). Neighbouring positions are not independent: the true interval is wider.',
          count
        )
      ];
}
