import { formatNumber } from '../../charts';

/** What can be set or pressed in a cell. `id` tells it from the others of the table and stays the same. */
export type ITableField = { readonly id: string; readonly label: string; readonly title?: string } & (
  | { readonly kind: 'switch'; readonly value: boolean; readonly change: (value: boolean) => void }
  | {
      readonly kind: 'number';
      readonly value: number;
      readonly least?: number;
      readonly most?: number;
      readonly isWhole: boolean;
      /** It is not what is in force. */
      readonly isEdited: boolean;
      readonly change: (value: number) => void;
    }
  | { readonly kind: 'button'; readonly isDisabled: boolean; readonly press: () => void }
);

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
  /** What stands in the cell instead of its text. */
  readonly fields?: (row: number) => readonly ITableField[];
  /** Long texts, which wrap. */
  readonly wraps?: boolean;
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
