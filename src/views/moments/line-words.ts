import { formatInteger, formatNumber } from '../../charts';
import type { IMomentIndex, MomentColumn } from '../../store/moment-source';
import { movesOf } from '../shared/change-words';
import type { Translate } from '../shared/translate';
import { nonFiniteWords, omittedWords, optionWords, trustWords } from './captions';
import { dashWords } from './colors';
import type { IOtherRun } from './other-runs';
import type { ILines } from './read-lines';
import { axisWords, byWords, capital, quantityWords, type MomentOptions } from './words';

/** What words are about. */
export interface ILineSubject {
  readonly options: MomentOptions;
  readonly by: readonly MomentColumn[];
  readonly read: ILines;
  /** Name of the view's own run. */
  readonly name: string;
  readonly others: readonly IOtherRun[];
  readonly index: IMomentIndex | null;
}

/** Say what is drawn: `Gradient L2 by layer, steps 1 to 3 000`. */
export function titleWords(
  options: MomentOptions,
  by: readonly MomentColumn[],
  steps: ArrayLike<number>,
  t: Translate
): string {
  const quantity = capital(quantityWords(options, t));
  const what = by.length === 0 ? t('%1 of all tensors', quantity) : t('%1 by %2', quantity, byWords(by, t));
  let [first, last] = [Infinity, -Infinity];
  for (let at = 0; at < steps.length; at += 1) {
    first = Math.min(first, steps[at] ?? first);
    last = Math.max(last, steps[at] ?? last);
  }
  return first === last
    ? t('%1, step %2', what, formatInteger(first))
    : t('%1, steps %2 to %3', what, formatInteger(first), formatInteger(last));
}

/** Say what is drawn, of which runs. */
export function lineTitle({ options, by, read, others }: ILineSubject, t: Translate): string {
  const title = titleWords(
    options,
    by,
    read.lines.flatMap(({ step }) => [step[0] ?? NaN, step[step.length - 1] ?? NaN]),
    t
  );
  return comparedTitle(title, options, others, t);
}

/** A title with what runs are minus or over this one put before it. */
export function comparedTitle(
  title: string,
  options: MomentOptions,
  others: readonly IOtherRun[],
  t: Translate
): string {
  const names = others.map(each => each.name).join(', ');
  return others.length === 0 || options.compare === 'overlay'
    ? title
    : options.compare === 'difference'
      ? t('Difference, %1 minus this run: %2', names, title)
      : t('Ratio, %1 over this run: %2', names, title);
}

/**
 * Say which runs are drawn, and how they are told apart.
 *
 * @param there - Those of the others that have something to draw.
 */
export function runWords(
  options: MomentOptions,
  name: string,
  others: readonly IOtherRun[],
  there: readonly IOtherRun[],
  t: Translate
): string[] {
  const compared = there.map(each => each.name).join(', ');
  if (there.length === 0) {
    return [];
  }
  switch (options.compare) {
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
  const empty = without.filter(each => !each.isAbsent).map(each => each.name);
  return [
    ...(empty.length > 0 ? [t('Nothing to compare in %1.', empty.join(', '))] : []),
    ...without
      .filter(each => each.isAbsent)
      .map(({ name }) => t('The run %1 could not be opened here, so it is not drawn.', name))
  ];
}

/** Say what of the lines is not literal. */
export function lineCaption(
  { options, by, read, others, index, name }: ILineSubject,
  t: Translate
): string[] {
  const unit =
    by.length === 0 ? t('series') : by.length === 1 && by[0] === 'name' ? t('tensors') : t('series');
  const compared = others.filter(each => !read.without.includes(each));
  return [
    ...omittedWords(read.base, unit, t),
    ...runWords(options, name, others, compared, t),
    ...(read.between > 0
      ? [
          t(
            'Where this run has no such point, what lies between its neighbours is taken: %1 times.',
            formatInteger(read.between)
          )
        ]
      : []),
    ...missingWords(read.without, t),
    ...(read.scale === 'symlog' ? [t('The axis is logarithmic on both sides of zero.')] : []),
    ...optionWords(options, index, t),
    ...nonFiniteWords(read.base, t),
    ...read.badIn.flatMap(other => nonFiniteWords(other.groups, t, true, other.name)),
    ...(compared.length > 0 && options.compare !== 'overlay'
      ? []
      : trustWords(read.base, { ...options, by: [...by] }, t))
  ];
}

/** Say what the lines did: `Gradient kurtosis rose from 3.1 to 9.8 between step 900 and 1 100 in layer 7`. */
export function lineSummary({ options, read, others: runs }: ILineSubject, t: Translate): string {
  const name = capital(
    axisWords(
      options,
      runs.map(each => each.id),
      t
    )
  );
  // Numbered by their places: a line need not be of a layer.
  const found = movesOf(read.lines.map(({ step, value }, layer) => ({ layer, steps: step, values: value })));
  if (found === null) {
    const known = read.lines.some(line => line.value.filter(Number.isFinite).length > 1);
    return known
      ? t('%1 stayed the same in every series.', name)
      : t('%1 has too few finite values to say how it moved.', name);
  }
  const { from, to, first, last, rises, layer } = found.strongest;
  const where = read.lines[layer]?.name ?? '';
  if (found.isSteady) {
    return t(
      '%1 stayed about the same; it moved most in %2, between %3 and %4.',
      name,
      where,
      formatNumber(Math.min(from, to), 3),
      formatNumber(Math.max(from, to), 3)
    );
  }
  const others = found.together.length - 1;
  const more = others > 0 ? t(', and likewise in %1 more', formatInteger(others)) : '';
  return t(
    rises
      ? '%1 rose from %2 to %3 between step %4 and %5 in %6%7.'
      : '%1 fell from %2 to %3 between step %4 and %5 in %6%7.',
    name,
    formatNumber(from, 3),
    formatNumber(to, 3),
    formatInteger(first),
    formatInteger(last),
    where,
    more
  );
}
