import type { StreamTable } from '../protocol/frame-table';
import type { StreamRequest } from '../protocol/requests.generated';
import { pageBytes } from '../protocol/streams';
import type { IStreamInfo } from '../protocol/streams';
import type { FieldType } from '../protocol/streams.generated';

/** A Float64Array that grows by doubling. */
export class Growable {
  get length(): number {
    return this._length;
  }

  /** A view of what is there now. Valid until the next change. */
  get view(): Float64Array {
    return this.data.subarray(0, this._length);
  }

  at(index: number): number {
    return this.data[index] ?? Number.NaN;
  }

  /** Put a value in at an index from 0 to `length`. */
  insert(index: number, value: number): void {
    if (this._length === this.data.length) {
      const grown = new Float64Array(this.data.length * 2);
      grown.set(this.data);
      this.data = grown;
    }
    if (index < this._length) {
      this.data.copyWithin(index + 1, index, this._length);
    }
    this.data[index] = value;
    this._length += 1;
  }

  /** Keep only the values at these ascending indices, and give memory back. */
  keep(indices: readonly number[]): void {
    const retained = new Float64Array(Math.max(16, indices.length));
    indices.forEach((from, to) => {
      retained[to] = this.at(from);
    });
    this.data = retained;
    this._length = indices.length;
  }

  private data = new Float64Array(16);
  private _length = 0;
}

export type RowColumn = Float64Array | readonly string[] | readonly (readonly (number | string)[])[];

/** Which rows of a stream are wanted. */
export type IRowsQuery = Pick<StreamRequest, 'steps' | 'where' | 'columns'>;

/** A stream with some of its columns, the step always among them; with all where none are named. */
export function withColumns(info: IStreamInfo, columns: readonly string[] | undefined): IStreamInfo {
  return columns === undefined
    ? info
    : { ...info, fields: info.fields.filter(({ name }) => name === 'step' || columns.includes(name)) };
}

/** Rows of a stream as columns of one length, ordered by step. */
export interface IStreamRows {
  readonly length: number;
  readonly columns: Readonly<Record<string, RowColumn>>;
  /** Rows that came and were given up to stay within memory, oldest first. */
  readonly evictedRows: number;
  /** Every n-th step is here; 1 is all of them. */
  readonly sampledEvery: number;
}

type Cells = Growable | unknown[];

const NUMBERS: ReadonlySet<FieldType> = new Set<FieldType>(['int32', 'int64', 'float64']);
const CELL_BYTES = 8;
const ENTRY_BYTES = 16;
const IDENTITY_BYTES = 128;
const MOST_WORDS = 4096;

/** The rows of a stream that has no store of its own, in the order of their arrival, bounded by bytes. */
export class RowStore {
  /** @param info - The stream's declaration: its columns, what identifies a row, and its bound. */
  constructor(private readonly info: IStreamInfo) {
    this.limitBytes = pageBytes(info);
    this.cells = this.emptyCells();
  }

  get bytes(): number {
    return this._bytes;
  }

  /** Rows that were given up to stay within memory. */
  get evictedRows(): number {
    return this._evictedRows;
  }

  /**
   * Add the rows of a frame.
   * @param again - Whether rows may come that are here already; those are left out.
   * @returns First and last step, or null when nothing was new.
   */
  append(table: StreamTable, mayRepeat: boolean): [number, number] | null {
    const { identity = [], newer = 'step' } = this.info.policy;
    const column = (name: string) => table.children[table.names.indexOf(name)];
    const [steps, rising, names] = [column('step'), column(newer), identity.map(column)];
    let [first, last] = [Infinity, -Infinity];
    for (let row = 0; row < table.numRows; row += 1) {
      const key = names.map(cells => String(cells?.at(row))).join('\0');
      const [step, now] = [Number(steps?.at(row)), Number(rising?.at(row))];
      const known = this.newest.get(key);
      // After a hub was started anew, what it sends from its buffer may be here: of each identity only what
      // is newer counts.
      if (mayRepeat && known !== undefined && now <= known) {
        continue;
      }
      if (known === undefined) {
        this._bytes += IDENTITY_BYTES;
      }
      this.newest.set(key, Math.max(now, known ?? -Infinity));
      this.push(table, row);
      first = Math.min(first, step);
      last = Math.max(last, step);
    }
    while (this._bytes > this.limitBytes && this.cost.length > 1) {
      this.evict();
    }
    return first > last ? null : [first, last];
  }

  rows({ steps, where = {}, columns: names }: IRowsQuery = {}): IStreamRows {
    const step = this.cells.get('step');
    const wanted = Object.entries(where);
    const found: number[] = [];
    for (let row = 0; row < this.cost.length; row += 1) {
      const at = Number(cell(step, row));
      if (
        (steps === undefined || (at >= steps[0] && at <= steps[1])) &&
        wanted.every(([name, value]) => cell(this.cells.get(name), row) === value)
      ) {
        found.push(row);
      }
    }
    // Ranks may be a step apart; the sort is stable, so rows of one step stay as they came.
    found.sort((a, b) => Number(cell(step, a)) - Number(cell(step, b)));
    const columns = withColumns(this.info, names).fields.map(({ name }): [string, RowColumn] => [
      name,
      pick(this.cells.get(name) ?? [], found)
    ]);
    return {
      length: found.length,
      columns: Object.fromEntries(columns),
      evictedRows: this._evictedRows,
      sampledEvery: 1
    };
  }

  /** Forget everything: another run begins. */
  clear(): void {
    this.cells = this.emptyCells();
    this.cost = new Growable();
    this.newest.clear();
    this.words.clear();
    this._bytes = 0;
    this._evictedRows = 0;
  }

  private push(table: StreamTable, row: number): void {
    let cost = CELL_BYTES;
    table.names.forEach((name, at) => {
      const value: unknown = table.children[at]?.at(row);
      const cells = this.cells.get(String(name));
      cost += CELL_BYTES;
      if (cells instanceof Growable) {
        cells.insert(cells.length, Number(value));
      } else if (typeof value === 'string') {
        cells?.push(this.intern(value));
        cost += this.words.has(value) ? 0 : value.length * 2;
      } else {
        // A copy: a view would keep the whole frame alive.
        const list = Array.from((value ?? []) as ArrayLike<number | string>);
        cells?.push(list);
        cost += list.reduce<number>(
          (sum, entry) => sum + (typeof entry === 'string' ? entry.length * 2 : 0),
          0
        );
        cost += list.length * ENTRY_BYTES;
      }
    });
    this.cost.insert(this.cost.length, cost);
    this._bytes += cost;
  }

  /** Give up the oldest quarter, so that not every frame has to. */
  private evict(): void {
    const gone = Math.max(1, Math.floor(this.cost.length / 4));
    this._bytes -= this.cost.view.subarray(0, gone).reduce((sum, cost) => sum + cost, 0);
    this._evictedRows += gone;
    const retained = Array.from({ length: this.cost.length - gone }, (_, row) => row + gone);
    for (const cells of [...this.cells.values(), this.cost]) {
      if (cells instanceof Growable) {
        cells.keep(retained);
      } else {
        cells.splice(0, gone);
      }
    }
  }

  // Every frame brings its own copy of the same few words.
  private intern(word: string): string {
    const known = this.words.get(word);
    if (known === undefined && this.words.size < MOST_WORDS) {
      this.words.set(word, word);
      this._bytes += word.length * 2;
    }
    return known ?? word;
  }

  private emptyCells(): Map<string, Cells> {
    return new Map(this.info.fields.map(({ name, type }) => [name, NUMBERS.has(type) ? new Growable() : []]));
  }

  private readonly limitBytes: number;
  private readonly newest = new Map<string, number>();
  private readonly words = new Map<string, string>();
  private cells: Map<string, Cells>;
  private cost = new Growable();
  private _bytes = 0;
  private _evictedRows = 0;
}

function cell(cells: Cells | undefined, row: number): unknown {
  return cells instanceof Growable ? cells.at(row) : cells?.[row];
}

function pick(cells: Cells, rows: readonly number[]): RowColumn {
  return cells instanceof Growable
    ? Float64Array.from(rows, row => cells.at(row))
    : (rows.map(row => cells[row]) as readonly string[]);
}
