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
