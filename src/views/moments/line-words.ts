import { formatInteger, formatNumber } from '../../charts';
import type { IMomentIndex, MomentColumn } from '../../store/moment-source';
import { firstBadWords, movesOf, moveWords, type IMoves } from '../shared/change-words';
import type { Translate } from '../shared/translate';
import { nonFiniteWords, omittedWords, optionWords, trustWords } from './captions';
import { hiddenWords } from '../shared/lines/legend';
import { finiteRange, type ILine } from '../shared/lines/line';
import { scaleWords } from '../shared/lines/line-recipe';
import { scaleOf } from '../shared/scale';
import { betweenWords, comparedTitle, missingWords, runWords } from '../shared/lines/compare';
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
export type Told = Pick<ILine, 'name' | 'nonFinite' | 'step' | 'value'>;

/** What lines did. They are numbered by their index, as layers are: a line need not be of a layer. */
export function movesOfLines(lines: readonly Pick<ILine, 'step' | 'value'>[]): IMoves | null {
  return movesOf(lines.map(({ step, value }, layer) => ({ layer, steps: step, values: value })));
}

/** Say what the lines did: `Gradient kurtosis rose from 3.1 to 9.8 between step 900 and 1 100 in layer 7`. */
export function lineSummary(subject: ILineSubject, t: Translate): string {
  return [...firstBad(subject.lines, t), courseSummary(subject, t)].join(' ');
}

/** Say where rows were not finite first, and what moved most; nothing where nothing did. */
export function eventWords(name: string, rows: readonly Told[], t: Translate): string[] {
  const found = movesOfLines(rows);
  return [...firstBad(rows, t), ...(found && !found.isSteady ? [movedWords(name, rows, found, t)] : [])];
}

function movedWords(name: string, lines: readonly Told[], found: IMoves, t: Translate): string {
  const { strongest, likewise } = found;
  const others = likewise.length > 0 ? t('%1 more', formatInteger(likewise.length)) : null;
  return moveWords(name, strongest, lines[strongest.layer]?.name ?? '', others, t);
}

/** Say where a line was not finite first. */
function firstBad(lines: readonly Told[], t: Translate): string[] {
  const found = lines.flatMap(({ name, step, nonFinite, value }) => {
    const at = Array.from(value).findIndex(
      (each, index) => (nonFinite[index] ?? 0) > 0 || Math.abs(each) === Infinity
    );
    return at < 0 ? [] : [{ where: name, step: step[at] ?? NaN }];
  });
  return firstBadWords(found, t);
}

function courseSummary({ options, lines, others: runs }: ILineSubject, t: Translate): string {
  const name = capital(
    axisWords(
      options,
      runs.map(each => each.id),
      t
    )
  );
  const found = movesOfLines(lines);
  if (found === null) {
    const known = lines.some(line => line.value.filter(Number.isFinite).length > 1);
    return known
      ? t('%1 stayed the same in every series.', name)
      : t('%1 has too few finite values to say how it moved.', name);
  }
  const { strongest, isSteady } = found;
  if (isSteady) {
    return t(
      '%1 stayed about the same; it moved most in %2, between %3 and %4.',
      name,
      lines[strongest.layer]?.name ?? '',
      formatNumber(strongest.low, 3),
      formatNumber(strongest.high, 3)
    );
  }
  return movedWords(name, lines, found, t);
}
