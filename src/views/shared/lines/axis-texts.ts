import { formatInteger } from '../../../charts';
import type { Translate } from '../translate';
import type { ILinesWish } from './line-recipe';

type Align = 'step' | 'time' | 'tokens';
type Place = 'samples' | 'step' | 'time';

/** Hours, minutes and seconds since the start, as a Vega expression for the labels of an axis. */
const ELAPSED = [
  'floor(datum.value / 3600)',
  "format(floor(datum.value / 60) % 60, '02d')",
  "format(floor(datum.value) % 60, '02d')"
].join(" + ':' + ");

/** Seconds that may lie between two ticks: what clocks and calendars divide. Of longer times, whole weeks. */
const ROUND = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800
];
const WEEK = 604800;
const MOST_TICKS = 10;

/** Where its ticks stand, as a Vega expression of the span that is shown. */
const ELAPSED_TICKS = ((): string => {
  const least = `(x1 - x0) / ${MOST_TICKS}`;
  const weeks = `${WEEK} * ceil(${least} / ${WEEK})`;
  const every = ROUND.reduceRight((rest, each) => `${least} <= ${each} ? ${each} : ${rest}`, weeks);
  return `sequence((${every}) * ceil(x0 / (${every})), x1 + 1e-6, ${every})`;
})();

const pad = (part: number): string => String(Math.floor(part)).padStart(2, '0');

/** Seconds as hours, minutes and seconds: `1:02:03`. */
const elapsed = (seconds: number): string =>
  `${formatInteger(Math.floor(seconds / 3600))}:${pad((seconds / 60) % 60)}:${pad(seconds % 60)}`;

/** Title and labels of the x axis. */
export function axisTexts(
  align: Align,
  x: Place,
  { isUtc }: { readonly isUtc: boolean },
  t: Translate
): Pick<ILinesWish['texts'], 'xLabel' | 'xTicks' | 'xTitle'> {
  if (align === 'time') {
    return { xTitle: t('time since the start'), xLabel: ELAPSED, xTicks: ELAPSED_TICKS };
  }
  if (align === 'tokens') {
    return { xTitle: t('tokens') };
  }
  switch (x) {
    case 'step':
      return { xTitle: t('step') };
    case 'samples':
      return { xTitle: t('samples') };
    case 'time':
      return {
        xTitle: isUtc ? t('time (UTC)') : t('time'),
        xLabel: `${isUtc ? 'utcFormat' : 'timeFormat'}(datum.value, '%H:%M:%S')`
      };
  }
}

/** What tips say of a place on the x axis beside its step. */
export function placeWords(align: Align, x: Place, t: Translate): (place: number) => string {
  if (align === 'time') {
    return place => t('%1 after the start', elapsed(place));
  }
  if (align === 'tokens') {
    return place => t('%1 tokens', formatInteger(place));
  }
  return place => (x === 'samples' ? t('%1 samples', formatInteger(place)) : '');
}
