import type { ITrendAnswer, ITrendQuery } from '../store/line-data';
import type { IRunSource, ITensorRow } from '../store/source';
import { cutTrend, isOther, joinTrends, thinTrend, trendOfRows } from './read-trend';

/** Newest steps that are read each time: more rows of them may come. */
const OPEN_STEPS = 16;
/** Steps beyond which what was settled is read anew, with all that came since. */
const MOST_STEPS = 256;
/** Questions whose answers are kept. */
const MOST_KEPT = 8;

/** An answer that leaves no point out which is here, with the rows that it is of. */
export interface ITrendRead {
  readonly answer: ITrendAnswer;
  readonly rows: readonly ITensorRow[];
}

interface IWatched {
  /** First step of which rows came since it was read. */
  from: number;
}

interface ILineEnd {
  /** The newest row, without its values. */
  readonly row: ITensorRow;
  /** Steps to the one before; NaN where that is not known. */
  readonly distance: number;
}

interface ISettled extends IWatched {
  /** Up to `upTo`, with no more points than were asked for. */
  readonly answer: ITrendAnswer;
  readonly upTo: number;
  /** Of each layer up to there. */
  readonly ends: ReadonlyMap<number, ILineEnd>;
}

const FOLLOWED = new WeakMap<IRunSource, FollowedTrends>();

/**
 * The trends of a run that goes on: what is long past is made once, so that a step more costs the same after an hour as in the first minute.
 */
export class FollowedTrends {
  static of(source: IRunSource): FollowedTrends {
    const known = FOLLOWED.get(source) ?? new FollowedTrends(source);
    FOLLOWED.set(source, known);
    return known;
  }

  private constructor(private readonly _source: IRunSource) {
    // This lives as long as the run, which lets go of all who listen.
    _source.changed.connect((_, change) => {
      const isOfTensors = change.kind === 'rows' && change.stream === 'tensors';
      const from = isOfTensors ? change.firstStep : change.kind === 'hello' ? -Infinity : Infinity;
      for (const each of [...this._settled.values(), ...this._reading]) {
        each.from = Math.min(each.from, from);
      }
    });
  }

  /**
   * Answer a question whose steps have no end, or which leaves points out.
   *
   * @param readWhole - Reads all of it.
   */
  async read(query: ITrendQuery, readWhole: () => Promise<ITrendRead>): Promise<ITrendAnswer> {
    const key = JSON.stringify(query);
    const settled = this._settled.get(key);
    const answer = settled && settled.from > settled.upTo ? await this._extend(settled, query) : null;
    if (answer) {
      return answer;
    }
    this._settled.delete(key);
    const watched: IWatched = { from: Infinity };
    this._reading.add(watched);
    try {
      const whole = await readWhole();
      const found = settle(whole, query);
      if (found && watched.from > found.upTo) {
        this._settled.set(key, { ...found, from: watched.from });
        [...this._settled.keys()].slice(0, -MOST_KEPT).forEach(old => this._settled.delete(old));
      }
      return thinTrend(whole.answer, query.points);
    } finally {
      this._reading.delete(watched);
    }
  }

  /** What is settled with what came since; null where that is not all. */
  private async _extend(settled: ISettled, query: ITrendQuery): Promise<ITrendAnswer | null> {
    const { answer: before, upTo, ends } = settled;
    const { statistic, selection, points, ...of } = query;
    const steps = [upTo + 1, query.steps?.[1] ?? Infinity] as const;
    const result = await this._source.tensors({ ...of, steps, reduced: true });
    const later = await trendOfRows(result, { statistic, selection });
    const isAll =
      settled.from > upTo &&
      (result.lackingTo ?? -Infinity) <= upTo &&
      later.total <= MOST_STEPS &&
      (later.kept === before.kept || later.newest === null);
    if (!isAll) {
      return null;
    }
    const firsts = new Map([...result.rows].reverse().map(row => [row.layer, row]));
    const { memory, evictedRows } = before;
    const joined = joinTrends(before, later, layer => ({
      changed: isOther(ends.get(layer)?.row, firsts.get(layer)),
      distance: ends.get(layer)?.distance ?? NaN
    }));
    return thinTrend({ ...joined, evictedRows, ...(memory && { memory }) }, points);
  }

  private readonly _settled = new Map<string, ISettled>();
  private readonly _reading = new Set<IWatched>();
}

function settle({ answer, rows }: ITrendRead, { points }: ITrendQuery): Omit<ISettled, 'from'> | null {
  const upTo = (rows[rows.length - 1]?.step ?? -Infinity) - OPEN_STEPS;
  const ends = new Map<number, ILineEnd>();
  const open = new Set<number>();
  for (const row of rows) {
    if (row.step > upTo) {
      open.add(row.step);
      continue;
    }
    const last = ends.get(row.layer);
    const distance = last?.row.step === row.step ? last.distance : row.step - (last?.row.step ?? NaN);
    ends.set(row.layer, { row: { ...row, values: NO_VALUES, labels: [] }, distance });
  }
  if (ends.size === 0) {
    return null;
  }
  const settled = {
    ...cutTrend(answer, [-Infinity, upTo]),
    total: answer.total - open.size,
    missing: answer.missing.filter(({ last }) => last <= upTo)
  };
  return { answer: thinTrend(settled, points), upTo, ends };
}

const NO_VALUES = new Float32Array(0);
