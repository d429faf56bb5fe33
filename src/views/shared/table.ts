import { formatNumber } from '../../charts';

/** A column of a table. */
export interface ITableColumn {
  readonly title: string;
  /** Numbers stand at the right. */
  readonly isNumber?: boolean;
  readonly text: (row: number) => string;
  /** What rows are put in order by; the rows' own order where it is absent. */
  readonly sortBy?: (row: number) => number | string;
  /** Makes the cell a button. */
  readonly press?: (row: number) => void;
}

/** A table as data: what each column says of a row. */
export interface ITable {
  readonly columns: readonly ITableColumn[];
  /** How many rows there are. */
  readonly rows: number;
}

/** A column of numbers, put in order by themselves. */
export function numberColumn(
  title: string,
  read: (row: number) => number,
  text: (value: number, row: number) => string = value => formatNumber(value)
): ITableColumn {
  return { title, isNumber: true, text: row => text(read(row), row), sortBy: read };
}
