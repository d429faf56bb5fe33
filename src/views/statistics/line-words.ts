import { formatInteger } from '../../charts';
import type { IMomentIndex, MomentColumn } from '../../store/row-moments';
import { countNaming, seriesWords } from '../shared/change-words';
import type { Translate } from '../shared/translate';
import { nonFiniteWords, omittedWords, optionWords, trustWords } from './captions';
import { hiddenWords } from '../kits/lines/legend';
import { finiteRange, type ILine, toldOf } from '../kits/lines/line';
import { scaleWords } from '../kits/lines/line-recipe';
import { scaleOf } from '../shared/scale';
import { betweenWords, comparedTitle, missingWords, runWords } from '../kits/lines/compare';
import type { IMomentRun } from './reader';
import type { ILines } from './read-lines';
import { axisWords, byWords, quantityWords, type MomentOptions } from './words';
import { capital } from '../shared/describe';

export interface ILineSubject {
  readonly options: MomentOptions;
  readonly by: readonly MomentColumn[];
  readonly read: ILines;
  /** Those of its lines that are not hidden. */
  readonly lines: readonly ILine[];
  readonly name: string;
  readonly others: readonly IMomentRun[];
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

export function lineTitle({ options, by, lines, others }: ILineSubject, t: Translate): string {
  const title = titleWords(
    options,
    by,
    lines.flatMap(({ step }) => [step[0] ?? NaN, step[step.length - 1] ?? NaN]),
    t
  );
  return comparedTitle(title, options, others, t);
}

/** Say what of the lines is not literal. */
export function lineCaption(
  { options, by, read, lines, others, index, name }: ILineSubject,
  t: Translate
): string[] {
  const unit =
    by.length === 0 ? t('series') : by.length === 1 && by[0] === 'name' ? t('tensors') : t('series');
  const compared = others.filter(each => !read.without.includes(each));
  return [
    ...omittedWords(read.base, unit, t),
    ...runWords(options, name, others, compared, t),
    ...betweenWords(read.between, t),
    ...missingWords(read.without, t),
    ...hiddenWords(read.lines, options.hidden, t),
    ...scaleWords(scaleOf(options.transform, finiteRange(lines)?.[0] ?? 0), t),
    ...optionWords(options, index, t),
    ...nonFiniteWords(read.base, t),
    ...read.badIn.flatMap(other => nonFiniteWords(other.groups, t, true, other.name)),
    ...(compared.length > 0 && options.compare !== 'overlay'
      ? []
      : trustWords(read.base, { ...options, by: [...by] }, t))
  ];
}

/** What a line says of its values at its steps. */
export type Told = Pick<ILine, 'name' | 'nonFinite' | 'starts' | 'step' | 'value'>;

/** Say what the lines did: `Gradient kurtosis rose from 3.1 to 9.8 between step 900 and 1 100 in layer 7`. */
export function lineSummary({ options, lines, others }: ILineSubject, t: Translate): string {
  const ids = others.map(each => each.id);
  const drawn = lines.filter(({ isFaint }) => !isFaint);
  return toldWords(capital(axisWords(options, ids, t)), drawn, t);
}

/** Say what rows or lines of a quantity did. Each is numbered by its index: it need not be of a layer. */
export const toldWords = (name: string, rows: readonly Told[], t: Translate, leads = false): string =>
  seriesWords(
    name,
    rows.map((row, layer) => ({ ...toldOf(row), layer })),
    countNaming(t),
    t,
    leads
  );
