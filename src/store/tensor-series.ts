import type { Pass, Phase } from '../protocol/messages.generated';
import { firstIndex } from '../protocol/records';
import { momentsOf, remember, rmsOf } from './row-moments';
import { type ITensorRow, compareRows } from './tensor-data';

/**
 * Indices of the least and the greatest finite value, and of the first that stands for something not finite,
 * ascending.
 * @param isOdd - What is not finite beside the values that are not.
 */
export function extremesOf(
  values: ArrayLike<number>,
  isOdd: (index: number) => boolean = () => false
): number[] {
  let [low, high, odd] = [-1, -1, -1];
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at] ?? NaN;
    const finite = Number.isFinite(value);
    odd = odd < 0 && (!finite || isOdd(at)) ? at : odd;
    low = finite && (low < 0 || value < (values[low] ?? 0)) ? at : low;
    high = finite && (high < 0 || value > (values[high] ?? 0)) ? at : high;
  }
  return [...new Set([low, high, odd])].filter(at => at >= 0).sort((a, b) => a - b);
}

const MAX_BLOCKS = 256;

/** Counts given-up rows by step in bounded memory: at most 256 blocks of neighbouring steps. */
export class EvictedLog {
  get total(): number {
    return this._total;
  }

  /** Note one row. Steps mostly rise. */
  add(step: number): void {
    this._total += 1;
    const last = this.blocks[this.blocks.length - 1];
    if (last !== undefined && step <= last.last) {
      last.first = Math.min(last.first, step);
      last.rows += 1;
      return;
    }
    this.blocks.push({ first: step, last: step, rows: 1 });
    if (this.blocks.length > MAX_BLOCKS) {
      this.blocks = this.blocks.flatMap((block, index, all) => {
        const next = all[index + 1];
        return index % 2 === 1
          ? []
          : [
              next === undefined
                ? block
                : { first: Math.min(block.first, next.first), last: next.last, rows: block.rows + next.rows }
            ];
      });
    }
  }

  /** Rows given up between two steps, inclusive. A block partly inside counts by its share, rounded up. */
  count(first: number, last: number): number {
    let rows = 0;
    for (const block of this.blocks) {
      const from = Math.max(first, block.first);
      const to = Math.min(last, block.last);
      if (from <= to) {
        rows += Math.ceil((block.rows * (to - from + 1)) / (block.last - block.first + 1));
      }
    }
    return rows;
  }

  private blocks: { first: number; last: number; rows: number }[] = [];
  private _total = 0;
}

/** Rows of which the extremes stay when a series is thinned. */
const BLOCK = 4;
/** A series with fewer rows is not thinned. */
const FEWEST = 2 * BLOCK;

/** What a series has rows of. */
export interface ISeriesKey {
  readonly part: string;
  readonly phase: Phase;
  readonly pass: Pass;
  readonly rank: number;
  readonly layer: number;
}

/**
 * The rows of one (flag, part, phase, pass, rank, layer) in three tiers: the newest in full; of older ones
 * the tensors with the least and the greatest rms of every few, and of the others the statistics only; of the
 * oldest, statistics thinned out the same way. Each thinning takes the older half, so that what is left
 * becomes sparser with age and never ends.
 */
export class TensorSeries {
  constructor(readonly key: ISeriesKey) {}

  /** Rows of which nothing is left. */
  readonly evicted = new EvictedLog();

  /** Newest step whose tensor was given up. */
  thinnedTo = -Infinity;

  /** Newest step of which nothing is left of some row. */
  goneTo = -Infinity;

  /** Rows in full. */
  get length(): number {
    return this.full.length;
  }

  /** Rows of which only the statistics are left. */
  get reducedLength(): number {
    return this.reduced.length;
  }

  /**
   * Put a row in its place.
   * @returns The row that it replaces when the same one came before, else null.
   */
  insert(row: ITensorRow): ITensorRow | null {
    this.errors += Number.isFinite(row.compressionError) ? 1 : 0;
    if (row.step <= this.thinnedTo) {
      const at = search(this.reduced, other => compareRows(other, row) >= 0);
      const there = this.reduced[at];
      if (there !== undefined && compareRows(there, row) === 0) {
        // It came again, for example after a broken link: what is known of it stays.
        return row;
      }
    }
    const newest = this.full[this.full.length - 1];
    if (newest === undefined || compareRows(newest, row) < 0) {
      this.full.push(row);
      return null;
    }
    const at = search(this.full, other => compareRows(other, row) >= 0);
    const there = this.full[at];
    if (there !== undefined && compareRows(there, row) === 0) {
      this.full[at] = row;
      return there;
    }
    this.full.splice(at, 0, row);
    return null;
  }

  /** Reduce the less telling tensors of the older half to their statistics. Returns the rows as they were. */
  thin(): ITensorRow[] {
    if (this.full.length < FEWEST) {
      return [];
    }
    const [retained, lost] = split(this.full);
    this.full = retained;
    this.reduce(lost);
    return lost;
  }

  /** Reduce the oldest tensor to its statistics, unless it is the only one. */
  thinOne(): ITensorRow[] {
    const lost = this.full.length > 1 ? this.full.splice(0, 1) : [];
    this.reduce(lost);
    return lost;
  }

  /** Give up the less telling statistics of the older half, or all but the newest few. Returns how many. */
  thinReduced(): number {
    if (this.reduced.length < FEWEST) {
      return this.drop(this.reduced.splice(0, 1));
    }
    const [retained, lost] = split(this.reduced);
    this.reduced = retained;
    return this.drop(lost);
  }

  /** Tensors between two steps, both inclusive. */
  between(first: number, last: number): ITensorRow[] {
    return within(this.full, first, last);
  }

  /** Rows between two steps of which only the statistics are left. */
  reducedBetween(first: number, last: number): ITensorRow[] {
    return within(this.reduced, first, last);
  }

  /** The newest row up to a step whose compression error was measured. */
  measured(last: number): ITensorRow | null {
    if (this.errors === 0) {
      return null;
    }
    const newest = (rows: readonly ITensorRow[]): ITensorRow | null => {
      for (let at = search(rows, row => row.step > last) - 1; at >= 0; at -= 1) {
        const row = rows[at];
        if (row !== undefined && Number.isFinite(row.compressionError)) {
          return row;
        }
      }
      return null;
    };
    const [full, reduced] = [newest(this.full), newest(this.reduced)];
    return (full?.step ?? -Infinity) >= (reduced?.step ?? -Infinity) ? full : reduced;
  }

  private reduce(lost: readonly ITensorRow[]): void {
    const added = lost.map((row): ITensorRow => {
      const values = new Float32Array(0);
      remember(values, momentsOf(row.values));
      this.thinnedTo = Math.max(this.thinnedTo, row.step);
      return { ...row, values, labels: NO_LABELS, reduced: true };
    });
    // Two ascending runs: the sort merges them.
    this.reduced = [...this.reduced, ...added].sort(compareRows);
  }

  private drop(lost: readonly ITensorRow[]): number {
    for (const { step } of lost) {
      this.evicted.add(step);
      this.goneTo = Math.max(this.goneTo, step);
    }
    return lost.length;
  }

  private full: ITensorRow[] = [];
  private reduced: ITensorRow[] = [];
  private errors = 0;
}

const NO_LABELS: readonly string[] = [];

/** Split rows into those that stay and those that go: of the older half all but each block's extremes. */
function split(rows: readonly ITensorRow[]): [ITensorRow[], ITensorRow[]] {
  const half = Math.floor(rows.length / 2 / BLOCK) * BLOCK;
  const [retained, lost]: [ITensorRow[], ITensorRow[]] = [[], []];
  for (let start = 0; start < half; start += BLOCK) {
    const stay = extremes(rows.slice(start, start + BLOCK));
    rows.slice(start, start + BLOCK).forEach((row, at) => (stay.has(at) ? retained : lost).push(row));
  }
  retained.push(...rows.slice(half));
  return [retained, lost];
}

/** Indices of the rows with the least and greatest rms, and of the first with a non-finite value. */
function extremes(rows: readonly ITensorRow[]): Set<number> {
  const odd = rows.map(({ nanCount, infCount }) => nanCount + infCount > 0);
  return new Set(
    extremesOf(
      rows.map(row => rmsOf(row.values)),
      at => odd[at] === true
    )
  );
}

function within(rows: readonly ITensorRow[], first: number, last: number): ITensorRow[] {
  return rows.slice(
    search(rows, row => row.step >= first),
    search(rows, row => row.step > last)
  );
}

/** Index of the first row for which a monotonic condition holds. */
function search(rows: readonly ITensorRow[], passed: (row: ITensorRow) => boolean): number {
  return firstIndex(rows.length, at => {
    const row = rows[at];
    return row !== undefined && passed(row);
  });
}
