import { byName } from '../protocol/records';
import type { IMergedMoments } from '../protocol/moment-statistics';
import { MERGED, mergeRows } from './moment-merge';

export type GatheredColumn =
  | 'count'
  | 'mean'
  | 'm2'
  | 'm3'
  | 'm4'
  | 'min'
  | 'max'
  | 'nan_count'
  | 'inf_count'
  | 'near_zero_count'
  | 'rounding';

export type IGatheredRow = Readonly<Partial<Record<GatheredColumn, number>>>;

/**
 * Rows with the cell of each, as arquero hands them over one by one, to be merged all at once when the first
 * answer is read.
 */
export class GatheredMoments {
  open(): number {
    this._cells += 1;
    return this._cells - 1;
  }

  /**
   * Add a row to a cell. Columns that are not there are 0, and are not read by what does not ask for them.
   */
  add(cell: number, row: IGatheredRow): void {
    const at = this._length;
    if (at === this._cell.length) {
      this._grow();
    }
    const { _columns: columns } = this;
    this._cell[at] = cell;
    columns.count[at] = row.count ?? 0;
    columns.mean[at] = row.mean ?? 0;
    columns.m2[at] = row.m2 ?? 0;
    columns.m3[at] = row.m3 ?? 0;
    columns.m4[at] = row.m4 ?? 0;
    columns.min[at] = row.min ?? NaN;
    columns.max[at] = row.max ?? NaN;
    const bad = (row.nan_count ?? 0) + (row.inf_count ?? 0);
    columns.nonFinite[at] = bad;
    const rounding = row.rounding ?? 0;
    columns.rounding[at] = rounding;
    this._any.nonFinite ||= bad !== 0;
    const near = row.near_zero_count ?? 0;
    columns.nearZero[at] = near;
    this._any.nearZero ||= near !== 0;
    this._any.rounding ||= rounding > 0;
    this._extremes ||= row.min !== undefined || row.max !== undefined;
    this._length += 1;
    this._merged = null;
  }

  /** Leave out the row that came first: a window's frame has passed it. */
  removeFirst(): void {
    this._first += 1;
    this._merged = null;
  }

  /** One value of each cell, read once by its name. */
  column(name: string, read: (of: IMergedMoments) => Float64Array): Float64Array {
    if (this._merged === null) {
      this._merged = mergeRows(
        { columns: this._columns, any: this._any },
        this._first,
        this._cell.subarray(this._first, this._length),
        this._cells,
        { power: 4, extremes: this._extremes }
      );
      this._read.clear();
    }
    const found = this._read.get(name) ?? read(this._merged);
    this._read.set(name, found);
    return found;
  }

  private _grow(): void {
    const capacity = Math.max(64, this._cell.length * 2);
    const cells = new Int32Array(capacity);
    cells.set(this._cell);
    this._cell = cells;
    for (const name of MERGED) {
      const grown = new Float64Array(capacity);
      grown.set(this._columns[name]);
      this._columns[name] = grown;
    }
  }

  private _cell = new Int32Array(0);
  private readonly _columns = byName(MERGED, () => new Float64Array(0));
  private readonly _any = { rounding: false, nonFinite: false, nearZero: false };
  private readonly _read = new Map<string, Float64Array>();
  private _merged: IMergedMoments | null = null;
  private _extremes = false;
  private _cells = 0;
  private _first = 0;
  private _length = 0;
}
