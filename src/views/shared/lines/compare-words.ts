import type { TrendOptions } from '../../../protocol/views.generated';
import { formatInteger } from '../../../charts';
import type { Translate } from '../translate';
import { dashWords } from './colors';
import type { IOtherRun } from './other-runs';

/** Options of views that compare runs. */
export type IComparison = Pick<Required<TrendOptions>, 'compare'>;

/** A title with what runs are minus or over this one put before it. */
export function comparedTitle(
  title: string,
  { compare }: IComparison,
  others: readonly IOtherRun[],
  t: Translate
): string {
  const names = others.map(each => each.name).join(', ');
  return others.length === 0 || compare === 'overlay'
    ? title
    : compare === 'difference'
      ? t('Difference, %1 minus this run: %2', names, title)
      : t('Ratio, %1 over this run: %2', names, title);
}

/**
 * Say which runs are drawn, and how they are told apart.
 *
 * @param there - Those of the others that have something to draw.
 */
export function runWords(
  { compare }: IComparison,
  name: string,
  others: readonly IOtherRun[],
  there: readonly IOtherRun[],
  t: Translate
): string[] {
  const compared = there.map(each => each.name).join(', ');
  if (there.length === 0) {
    return [];
  }
  switch (compare) {
    case 'overlay':
      return [
        t('%1 (this run): solid.', name),
        ...there.map(each => t('%1: %2.', each.name, dashWords(others.indexOf(each) + 1, t)))
      ];
    case 'difference':
      return [t('%1 minus this run.', compared)];
    case 'ratio':
      return [t('%1 over this run.', compared)];
  }
}

/** Say which runs have nothing to draw, and which could not be opened. */
export function missingWords(without: readonly IOtherRun[], t: Translate): string[] {
  const empty = without.filter(each => each.source !== null).map(each => each.name);
  return [
    ...(empty.length > 0 ? [t('Nothing to compare in %1.', empty.join(', '))] : []),
    ...without
      .filter(each => each.source === null)
      .map(({ name }) => t('The run %1 could not be opened here, so it is not drawn.', name))
  ];
}

/** Say how often a run was read between two of its points. */
export function betweenWords(between: number, t: Translate): string[] {
  return between > 0
    ? [
        t(
          'Where this run has no such point, what lies between its neighbours is taken: %1 times.',
          formatInteger(between)
        )
      ]
    : [];
}
