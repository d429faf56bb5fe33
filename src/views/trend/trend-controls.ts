import { STATISTICS, isWholeStatistic, keptStatistic, type layoutOf, type Statistic } from '../../aggregate';
import type { TrendOptions } from '../../protocol/views.generated';
import type { Control } from '../shared/control';
import { isRangeText } from '../../protocol/ranges';
import { numberField } from '../shared/fields';
import { selectControl } from '../shared/select-control';
import type { Translate } from '../shared/translate';
import { statisticWords } from './trend-words';

/**
 * The picker of a statistic: of whole tensors and of what the compressor kept. Parts of tensors, and bands, are known of the latter only.
 */
export function statisticControl(
  { statistic, positions, interval }: Pick<Required<TrendOptions>, 'interval' | 'positions' | 'statistic'>,
  change: (statistic: Statistic) => void,
  t: Translate
): Control {
  const isPart = positions.trim() !== 'all' || interval !== 'none';
  const choices = STATISTICS.filter(value => value === statistic || !isPart || !isWholeStatistic(value)).map(
    value => ({ value, text: statisticWords(value, t) })
  );
  return selectControl('statistic', t('Statistic'), statistic, choices, change);
}

/**
 * What of a tensor enters a trend and what band is drawn: positions and vectors where there are several.
 *
 * @param layout Of the newest row; undefined while there is none.
 */
export function selectionControls(
  options: Required<TrendOptions>,
  layout: ReturnType<typeof layoutOf> | undefined,
  change: (options: Partial<TrendOptions>) => void,
  t: Translate
): Control[] {
  const { positions, vector, interval, kind, statistic } = options;
  const controls: Control[] = [];
  if (layout && (layout.hasPositions || positions !== 'all')) {
    controls.push({
      kind: 'text',
      id: 'positions',
      label: t('Positions'),
      value: positions,
      suggestions: ['all', '0', ...(layout.length > 1 ? [String(layout.length - 1)] : [])],
      valid: isRangeText,
      change: value => change({ positions: value, ...partOf(value, statistic) })
    });
  }
  if (layout && layout.vectors > 1) {
    controls.push(
      numberField('vector', t('Vector'), vector, [0, layout.vectors - 1], value => change({ vector: value }))
    );
  }
  if (kind === 'lines') {
    const words = { none: t('none'), std: t('± std'), ci95: t('95 % of the mean') };
    controls.push(
      // A band is about a mean.
      selectControl('interval', t('Band'), interval, words, chosen =>
        change({ interval: chosen, ...(chosen === 'none' ? {} : { statistic: 'kept_mean' }) })
      )
    );
  }
  return controls;
}

/** The statistic of a part of tensors that stands for one of whole ones. */
function partOf(positions: string, statistic: Statistic): Pick<TrendOptions, 'statistic'> {
  const kept = keptStatistic(statistic);
  return positions.trim() !== 'all' && isWholeStatistic(statistic) && statistic !== 'nonfinite'
    ? { statistic: kept === null || kept === 'nonfinite' ? 'kept_rms' : `kept_${kept}` }
    : {};
}
