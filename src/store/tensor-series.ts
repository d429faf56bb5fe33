import { EvictedLog } from './evicted-log';
import type { ITensorRow } from './source';
import { compareRows } from './tensor-rows';

/** The rows of one (flag, part, phase, layer), oldest first; the oldest go when memory runs out. */
export class TensorSeries {
  constructor(
    readonly part: string,
    readonly phase: string,
    readonly layer: number
  ) {}

  readonly evicted = new EvictedLog();

  get length(): number {
    return this.rows.length - this.start;
  }

  /**
   * Put a row in its place.
   *
   * @returns The row that it replaces when the same one came before, else null.
   */
  insert(row: ITensorRow): ITensorRow | null {
    const newest = this.rows[this.rows.length - 1];
    if (newest === undefined || this.length === 0 || compareRows(newest, row) < 0) {
      this.rows.push(row);
      return null;
    }
    const at = this.search(other => compareRows(other, row) >= 0);
    const there = this.rows[at];
    if (there !== undefined && compareRows(there, row) === 0) {
      this.rows[at] = row;
      return there;
    }
    this.rows.splice(at, 0, row);
    return null;
  }

  /** Give up the oldest row. */
  evict(): ITensorRow | null {
    const oldest = this.rows[this.start];
    if (oldest === undefined) {
      return null;
    }
    this.evicted.add(oldest.step);
    this.start += 1;
    if (this.start > 64 && this.start * 2 > this.rows.length) {
      this.rows = this.rows.slice(this.start);
      this.start = 0;
    } else {
      // The array still holds the slot; it must not hold the tensor.
      this.rows[this.start - 1] = HOLE;
    }
    return oldest;
  }

  /** Rows between two steps, both inclusive. */
  between(first: number, last: number): ITensorRow[] {
    return this.rows.slice(
      this.search(row => row.step >= first),
      this.search(row => row.step > last)
    );
  }

  private search(passed: (row: ITensorRow) => boolean): number {
    let low = this.start;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const row = this.rows[middle];
      if (row !== undefined && passed(row)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  private rows: ITensorRow[] = [];
  private start = 0;
}

const HOLE: ITensorRow = {
  step: -1,
  microBatch: 0,
  phase: 'train',
  pass: 'forward',
  rank: 0,
  layer: 0,
  flag: '',
  part: '',
  compressor: '',
  sourceShape: [],
  shape: [],
  values: new Float32Array(0),
  labels: [],
  nanCount: 0,
  infCount: 0
};
