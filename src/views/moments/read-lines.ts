import type { IMomentGroups, IMomentQuery, MomentColumn } from '../../store/moment-source';
import type { Translate } from '../shared/translate';
import { StepAxis } from './axes';
import { badSteps, badStretches, drawnSteps, type IStretch } from './captions';
import { compareLines } from './compare';
import { finiteRange, linesOf, type IMomentLine } from './line';
import type { IOtherRun } from './other-runs';
import type { MomentReader } from './reader';
import { padded, scaleOf, wide } from '../shared/scale';
import { keyWords, type MomentOptions } from './words';

/** Where lines come from. */
export interface ILinesQuery {
  readonly options: MomentOptions;
  readonly by: readonly MomentColumn[];
  readonly question: IMomentQuery;
  /** The question for every step of a run. */
  readonly everything: IMomentQuery;
  readonly name: string;
  readonly reader: MomentReader;
  readonly others: readonly IOtherRun[];
  readonly axis: StepAxis;
  /** Every step that was logged. */
  readonly steps: Float64Array;
}

/** Another run with values that are not finite. */
export interface IBadRun {
  readonly name: string;
  readonly groups: IMomentGroups;
  readonly stretches: readonly IStretch[];
}

/** Whole lines, and what is drawn around them. */
export interface ILines {
  /** What was asked of this run. */
  readonly question: IMomentQuery;
  /** This run's groups. */
  readonly base: IMomentGroups;
  readonly lines: readonly IMomentLine[];
  /** Points of a comparison that lie between two of this run's. */
  readonly between: number;
  /** Other runs that have nothing to compare. */
  readonly without: readonly IOtherRun[];
  /** Where values are not finite, in any of the runs. */
  readonly bad: readonly IStretch[];
  /** Other runs in which there are some. */
  readonly badIn: readonly IBadRun[];
  readonly x: [number, number];
  readonly y: [number, number];
  readonly scale: string;
  /** Whether more detail can be read for a stretch of steps. */
  readonly leftOut: boolean;
}

/** Most points of all lines together, the least and most of one, and the most of one that is compared. */
const POINTS = { all: 80_000, least: 400, most: 2000, compared: 20_000 };

/** The question for as many lines, and points of them, as are drawn beside those of other runs. */
export function linesQuestion(
  options: MomentOptions,
  question: IMomentQuery,
  others: readonly IOtherRun[]
): IMomentQuery {
  const runs = 1 + others.length;
  const fair = Math.floor(POINTS.all / Math.max(1, options.series * runs));
  const few = Math.max(POINTS.least, Math.min(POINTS.most, fair));
  return { ...question, series: options.series, points: isCompared(options, others) ? POINTS.compared : few };
}

function isCompared({ compare }: MomentOptions, others: readonly IOtherRun[]): boolean {
  return compare !== 'overlay' && others.length > 0;
}

/** Read the lines that options ask for, of this run and of those it is compared with; null where there are none. */
export async function readLines(
  query: ILinesQuery,
  signal: AbortSignal,
  t: Translate
): Promise<ILines | null> {
  const { options, reader, others, axis, question } = query;
  const compares = isCompared(options, others);
  const read = async (from: MomentReader, run: number): Promise<[IMomentGroups, IMomentLine[]]> => {
    const groups = await from.groups(question, signal);
    const raw = options.smoothing > 1 ? await from.groups({ ...question, smoothing: 0 }, signal) : null;
    return [groups, namedLines(query, groups, run, t, raw)];
  };
  const [base, own] = await read(reader, 0);
  const theirs = await Promise.all(
    others.map(async ({ name, reader: other }, at) => {
      if (other === null) {
        return { lines: [], bad: null };
      }
      const [groups, lines] = await read(other, at + 1);
      const bad = badSteps(groups).size > 0 ? await badRun(query, name, other, groups, signal) : null;
      return { lines, bad };
    })
  );
  const rest = theirs.map(({ lines }) => lines);
  const badIn = theirs.flatMap(({ bad }) => bad ?? []);
  const compared =
    compares && options.compare !== 'overlay' ? compareLines(own, rest.flat(), options.compare) : null;
  const lines = compared?.lines ?? [...own, ...rest.flat()];
  if (lines.length === 0) {
    return null;
  }
  const range = finiteRange(lines);
  const ends = lines.flatMap(({ x }) => [x[0] ?? 0, x[x.length - 1] ?? 0]);
  return {
    question,
    base,
    lines,
    between: compared?.between ?? 0,
    without: others.filter((_, at) => rest[at]?.length === 0),
    bad: [
      ...badStretches(base, query.steps, step => axis.xOf(step)),
      ...badIn.flatMap(({ stretches }) => stretches)
    ],
    badIn,
    x: wide([Math.min(...ends), Math.max(...ends)]),
    y: padded(range, options.transform === 'log'),
    scale: scaleOf(options.transform, range?.[0] ?? 0),
    leftOut: !compares && base.stepsTotal > drawnSteps(base)
  };
}

/** Find where another run has values that are not finite: neighbours among its own steps are one stretch. */
async function badRun(
  { everything, options }: ILinesQuery,
  name: string,
  reader: MomentReader,
  groups: IMomentGroups,
  signal: AbortSignal
): Promise<IBadRun> {
  const total = await reader.groups(everything, signal);
  const axis = new StepAxis(total, options.x);
  return { name, groups, stretches: badStretches(groups, total.step, step => axis.xOf(step)) };
}

/** Turn groups of one of the runs into lines with names; with the run's where there are several. */
export function namedLines(
  { options, by, name, others }: Pick<ILinesQuery, 'options' | 'by' | 'name' | 'others'>,
  groups: IMomentGroups,
  run: number,
  t: Translate,
  raw: IMomentGroups | null = null
): IMomentLine[] {
  const runs = [name, ...others.map(each => each.name)];
  return linesOf(groups, {
    options,
    by,
    run,
    ...(raw ? { raw } : {}),
    name: key => (others.length > 0 ? `${runs[run] ?? ''} · ${keyWords(key, by, t)}` : keyWords(key, by, t)),
    label: key => (others.length > 0 && groups.keys.length === 1 ? (runs[run] ?? '') : keyWords(key, by, t))
  });
}
