import { own } from '../../../protocol/own';
import type { IStreamRows } from '../../../store/row-store';

/** Reads rows of a stream cell by cell; columns may be missing, and cells hold anything. */
export class RowCells {
  constructor(private readonly _rows: Pick<IStreamRows, 'columns'>) {}

  /** A number; NaN where there is none. */
  number(name: string, row: number): number {
    return Number(this._cell(name, row) ?? NaN);
  }

  /** A whole number; -1 where there is none. */
  count(name: string, row: number): number {
    const value = this.number(name, row);
    return Number.isSafeInteger(value) ? value : -1;
  }

  /** A text; empty where there is none. */
  text(name: string, row: number): string {
    const value = this._cell(name, row);
    return typeof value === 'string' ? value : '';
  }

  /** A list; empty where there is none. */
  list(name: string, row: number): readonly (number | string)[] {
    const value = this._cell(name, row);
    return Array.isArray(value) ? (value as readonly (number | string)[]) : [];
  }

  private _cell(name: string, row: number): unknown {
    return own(this._rows.columns, name)?.[row];
  }
}

/** A column of numbers; NaN throughout where there is none. */
export function numberColumn(
  { columns, length }: Pick<IStreamRows, 'columns' | 'length'>,
  name: string
): Float64Array {
  const column = own(columns, name);
  return column instanceof Float64Array ? column : new Float64Array(length).fill(NaN);
}
