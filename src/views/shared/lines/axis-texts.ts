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

/** Title and labels of the x axis. */
export function axisTexts(
  align: Align,
  x: Place,
  { isUtc }: { readonly isUtc: boolean },
  t: Translate
): Pick<ILinesWish['texts'], 'xLabel' | 'xTitle'> {
  if (align === 'time') {
    return { xTitle: t('time since the start'), xLabel: ELAPSED };
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
    return place => t('%1 s after the start', formatInteger(place));
  }
  if (align === 'tokens') {
    return place => t('%1 tokens', formatInteger(place));
  }
  return place => (x === 'samples' ? t('%1 samples', formatInteger(place)) : '');
}
