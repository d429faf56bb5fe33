import { picked } from '../../aggregate';
import { byName } from '../../protocol/records';
import { GROUP_FLOATS, type IMomentGroups, type MomentKey, type MomentColumn } from '../../store/row-moments';
import { compareLines } from '../kits/lines/compare';
import { mapColumns, type ILine } from '../kits/lines/line';
import { pointsOf } from '../kits/lines/shape-lines';
import { clockOf, type RunClock, StepAxis } from '../kits/lines/step-axis';
import type { Translate } from '../shared/translate';
import { badSteps, badStretches, type IStretch } from './captions';
import { groupId, LINE_COLUMNS, linesOf, startsOf } from './line';
import type { IMomentQuestion, IMomentRun, MomentReader } from './reader';
import { keyWords, type MomentOptions } from './words';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

/** Rows of groups whose keys are the same but for one column. */
interface IPart {
  /** The rest of the key. */
  readonly key: MomentKey;
  /** Indices of the rows, ascending by where they lie. */
  readonly rows: readonly number[];
}

/** Where a value of a key lies; null where it lies nowhere. */
export type PlaceOf = (value: MomentKey[number]) => number | null;

const numbers: PlaceOf = value => (typeof value === 'number' ? value : null);

/**
 * Take groups apart by all columns of their keys but one, which says where a row lies. What lies nowhere is
 * left out.
 */
function partsOf(
  groups: IMomentGroups,
  column: number,
  placeOf: PlaceOf
): { readonly parts: readonly IPart[]; readonly xs: Float64Array } {
  const found = new Map<string, { key: MomentKey; rows: number[] }>();
  const xs = new Float64Array(groups.group.length).fill(NaN);
  groups.group.forEach((group, row) => {
    const fullKey = groups.keys[group] ?? [];
    const x = placeOf(fullKey[column] ?? null);
    if (x !== null) {
      const key = fullKey.filter((_, at) => at !== column);
      const id = JSON.stringify(key);
      const part = found.get(id) ?? { key, rows: [] };
      part.rows.push(row);
      found.set(id, part);
      xs[row] = x;
    }
  });
  const parts = [...found.values()];
  parts.forEach(({ rows }) => rows.sort((a, b) => (xs[a] ?? 0) - (xs[b] ?? 0)));
  return { parts, xs };
}

/**
 * Turn groups at one step into a line for each of the rest of their keys, over the first column: over layers.
 * What has no layer is left out. `placeOf`: where a value of the first column lies; a number there when
 * absent.
 */
export function linesAcross(
  groups: IMomentGroups,
  run: number,
  name: (key: MomentKey) => string,
  label: (key: MomentKey) => string,
  entry?: string,
  placeOf = numbers
): ILine[] {
  const { parts, xs } = partsOf(groups, 0, placeOf);
  return parts.map(({ key, rows }) => {
    const column = (values: Float64Array): Float64Array => picked(values, rows);
    return {
      key: groupId(key),
      ...(entry === undefined ? {} : { entry }),
      name: name(key),
      label: label(key),
      run,
      layer: null,
      starts: [],
      isThin: false,
      digits: 9,
      ...byName(LINE_COLUMNS, of => column(of === 'x' ? xs : groups[of]))
    };
  });
}

/** Groups by row of a map, and where each of their rows lies. */
export interface IMapGrid {
  readonly groups: IMomentGroups;
  readonly xs: Float64Array;
  /** Groups without a position. */
  readonly left: number;
}

/** Turn groups at one step into rows of a map, over the last column of their keys. */
export function gridAcross(groups: IMomentGroups, most: number): IMapGrid {
  const { parts, xs } = partsOf(groups, (groups.keys[0]?.length ?? 1) - 1, numbers);
  const sizeOf = ({ rows }: IPart): number =>
    rows.reduce((size, row) => {
      const value = groups.nonFinite[row] === 0 ? Math.abs(groups.value[row] ?? NaN) : Infinity;
      return Number.isNaN(value) ? size : Math.max(size, value);
    }, -1);
  const least = parts.map(sizeOf).sort((a, b) => b - a)[most - 1] ?? -Infinity;
  const kept = parts.length <= most ? parts : parts.filter(part => sizeOf(part) >= least).slice(0, most);
  const rows = kept.flatMap(part => part.rows);
  return {
    groups: {
      ...byName(GROUP_FLOATS, name => Float64Array.from(rows, row => groups[name][row] ?? NaN)),
      scaled: Uint8Array.from(rows, row => groups.scaled[row] ?? 0),
      keys: kept.map(part => part.key),
      group: Uint32Array.from(kept.flatMap((part, at) => part.rows.map(() => at))),
      groupsTotal: parts.length,
      stepsTotal: 1
    },
    xs: Float64Array.from(rows, row => xs[row] ?? NaN),
    left: xs.filter(Number.isNaN).length
  };
}

/** A line at some of its layers only; none where it has none of them. */
export function onlyAt(line: ILine, layers: ArrayLike<number>): ILine[] {
  const wanted = new Set(Array.from(layers));
  const cut = (column: Float64Array): Float64Array => column.filter((_, at) => wanted.has(line.x[at] ?? NaN));
  const kept = mapColumns(line, cut);
  return kept.x.length === 0 ? [] : [kept];
}

export interface ILinesQuery {
  readonly options: MomentOptions;
  readonly by: readonly MomentColumn[];
  readonly question: IMomentQuestion;
  /** The question for every step of a run. */
  readonly everything: MomentGroupsRequest;
  readonly name: string;
  readonly id: string;
  readonly reader: MomentReader;
  readonly others: readonly IMomentRun[];
  readonly axis: StepAxis;
  readonly logged: ILogged;
  /** Where the view's own steps lie on the axis by which runs are aligned. */
  readonly clock: RunClock;
}

/** Another run with values that are not finite. */
export interface IBadRun {
  readonly name: string;
  readonly groups: IMomentGroups;
  readonly stretches: readonly IStretch[];
}

/** Steps with their samples, ascending. */
export type ILogged = Pick<IMomentGroups, 'samples' | 'step' | 'stepsTotal'>;

/** Whole lines, and what is drawn around them. */
export interface ILines {
  readonly base: IMomentGroups;
  readonly lines: readonly ILine[];
  /** Points of a comparison that lie between two of this run's. */
  readonly between: number;
  /** Other runs that have nothing to compare. */
  readonly without: readonly IMomentRun[];
  /** Where values are not finite, in any of the runs. */
  readonly bad: readonly IStretch[];
  /** Other runs in which there are some. */
  readonly badIn: readonly IBadRun[];
  readonly axis: StepAxis;
  /** Every point of the lines of a run in some steps; absent where all are here. */
  readonly readSteps?: (run: number, steps: readonly [number, number]) => Promise<readonly ILine[]>;
}

/** Most points of a line that is compared: then every one is needed. */
const COMPARED = 20_000;

/** The question for as many lines, and points of them, as are drawn along with those of other runs. */
export function linesQuestion(
  options: MomentOptions,
  question: IMomentQuestion,
  others: readonly IMomentRun[],
  width: number
): IMomentQuestion {
  const points = isCompared(options, others)
    ? COMPARED
    : pointsOf(width, options.series * (1 + others.length));
  return { ...question, series: options.series, points };
}

function isCompared({ compare }: MomentOptions, others: readonly IMomentRun[]): boolean {
  return compare !== 'overlay' && others.length > 0;
}

/**
 * Read the lines that options ask for, of this run and of those it is compared with; null where there are
 * none.
 */
export async function readLines(
  query: ILinesQuery,
  signal: AbortSignal,
  t: Translate
): Promise<ILines | null> {
  const { options, reader, others, axis, question, logged, clock } = query;
  const own = await runOf(reader, 0, logged, clock, query, t);
  const rest = await Promise.all(
    others.map(async (other, at) => {
      if (other.reader === null || other.source === null) {
        return null;
      }
      const total = await other.reader.groups(query.everything, signal);
      const theirs = await clockOf(other.source, options.align, signal);
      return theirs && runOf(other.reader, at + 1, total, theirs, query, t);
    })
  );
  const base = await reader.groups(question, signal);
  const mine = await own(question, signal);
  const theirs = await Promise.all(rest.map(async read => (read ? read(question, signal) : [])));
  const badIn = (
    await Promise.all(others.map(each => each.reader && badRun(query, each.name, each.reader, signal)))
  ).filter(each => each !== null);
  const compared =
    isCompared(options, others) && options.compare !== 'overlay'
      ? compareLines(mine, theirs.flat(), options.compare)
      : null;
  const lines = compared?.lines ?? [...mine, ...theirs.flat()];
  if (lines.length === 0) {
    return null;
  }
  return {
    base,
    lines,
    between: compared?.between ?? 0,
    without: others.filter((_, at) => theirs[at]?.length === 0),
    bad: [
      ...badStretches(base, logged.step, step => axis.xOf(step)),
      ...badIn.flatMap(({ stretches }) => stretches)
    ],
    badIn,
    axis,
    ...(compared
      ? {}
      : { readSteps: async (run, steps) => (await [own, ...rest][run]?.({ ...question, steps })) ?? [] })
  };
}

type Read = (question: MomentGroupsRequest, signal?: AbortSignal) => Promise<readonly ILine[]>;

/** Return what reads the lines of a run: of smoothed ones the numbers themselves as well, as faint lines. */
function runOf(
  from: MomentReader,
  run: number,
  total: ILogged,
  clock: RunClock,
  { options, by, name, id, others }: ILinesQuery,
  t: Translate
): Read {
  const ids = [id, ...others.map(each => each.id)];
  const names = [name, ...others.map(each => each.name)];
  const own = (words: string): string => (others.length > 0 ? `${names[run] ?? ''} · ${words}` : words);
  const starts = startsOf(total);
  return async ({ points, ...question }, signal) => {
    const groups = await from.groups(points === undefined ? question : { ...question, points }, signal);
    const isAlone = others.length > 0 && groups.keys.length === 1;
    const wish = {
      options,
      by,
      run,
      starts,
      clock,
      name: (key: IMomentGroups['keys'][number]) => own(keyWords(key, by, t)),
      label: (key: IMomentGroups['keys'][number]) => (isAlone ? (names[run] ?? '') : keyWords(key, by, t)),
      ...(isAlone ? { entry: ids[run] ?? '' } : {})
    };
    if (options.smoothing < 2) {
      return linesOf(groups, wish);
    }
    const raw = { ...question, smoothing: 0, ...(points === undefined ? {} : { points }) };
    return [...linesOf(await from.groups(raw, signal), { ...wish, isFaint: true }), ...linesOf(groups, wish)];
  };
}

/**
 * Find where another run has values that are not finite: neighbours among its own steps are one stretch. Null
 * where it has none.
 */
async function badRun(
  { everything, question, options }: ILinesQuery,
  name: string,
  reader: MomentReader,
  signal: AbortSignal
): Promise<IBadRun | null> {
  const groups = await reader.groups(question, signal);
  if (badSteps(groups).size === 0) {
    return null;
  }
  const total = await reader.groups(everything, signal);
  const axis = options.x === 'samples' ? new StepAxis(total.step, total.samples) : new StepAxis(total.step);
  return { name, groups, stretches: badStretches(groups, total.step, step => axis.xOf(step)) };
}
