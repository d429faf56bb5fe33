import { formatNumber } from '../../charts';
import { isRangeText } from '../../protocol/ranges';
import type { Control } from './control';
import { layersFault } from './layers';
import { type Translate, untranslated } from './translate';

/** Numbers that a line of ranges suggests. */
const MOST_SUGGESTED = 100;

/** Words that say what was chosen, and take it back. */
export const chip = (id: string, text: string, title: string, remove: () => void): Control => ({
  kind: 'chip',
  id,
  text,
  title,
  remove
});

export const numberField = (
  id: string,
  label: string,
  value: number,
  [least, most]: readonly [number, number],
  change: (value: number) => void
): Control => ({ kind: 'number', id, label, value, least, most, change });

/** A line in which ranges of numbers are written, such as `0-3, 7`, or `all`. */
export const rangesField = (
  id: string,
  label: string,
  value: string,
  known: readonly number[],
  change: (value: string) => void,
  valid: (text: string) => boolean = isRangeText,
  t: Translate = untranslated
): Control => ({
  kind: 'text',
  id,
  label,
  value,
  suggestions: ['all', ...known.slice(0, MOST_SUGGESTED).map(String)],
  valid,
  ...(id === 'layers' && { why: text => layersFault(text, known, t)?.message }),
  change
});

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

/** A column of a table, of whose rows it says something: of each by its number unless told otherwise. */
export interface ITableColumn<R = number> {
  readonly title: string;
  /** Numbers stand at the right. */
  readonly isNumber?: boolean;
  readonly text: (row: R) => string;
  /** What rows are put in order by; the rows' own order where it is absent. */
  readonly sortBy?: (row: R) => number | string;
  /** Makes the cell a button. */
  readonly press?: (row: R) => void;
  /** What stands in the cell instead of its text. */
  readonly fields?: (row: R) => readonly ITableField[];
  /** Long texts, which wrap. */
  readonly wraps?: boolean;
}

/** A table as data: what each column says of a row. */
export interface ITable {
  readonly columns: readonly ITableColumn[];
  readonly rows: number;
}

/** The table of a list, whose columns say something of each of its rows. */
export function tableOf<R>(rows: readonly R[], columns: readonly ITableColumn<R>[]): ITable {
  const at =
    <T>(say: (row: R) => T) =>
    (row: number): T =>
      say(rows[row] as R);
  return {
    rows: rows.length,
    columns: columns.map(({ text, sortBy, press, fields, ...column }) => ({
      ...column,
      text: at(text),
      ...(sortBy && { sortBy: at(sortBy) }),
      ...(press && { press: at(press) }),
      ...(fields && { fields: at(fields) })
    }))
  };
}

/** A column of numbers, put in order by themselves. */
export function numberColumn<R = number>(
  title: string,
  read: (row: R) => number,
  text: (value: number, row: R) => string = value => formatNumber(value)
): ITableColumn<R> {
  return { title, isNumber: true, text: row => text(read(row), row), sortBy: read };
}

/**
 * What a tooltip says: a heading and lines of name and value, perhaps with the value at the pinned step and
 * the difference from it.
 */
export interface ITip {
  heading: string;
  /** What stands over the columns behind the values, where lines have such. */
  columns?: readonly [string, string];
  lines: readonly { name: string; value: string; color?: string; beside?: readonly [string, string] }[];
}

/** Say a tip in one sentence. */
export const tipSaid = ({ heading, lines }: ITip): string =>
  [heading, ...lines.map(({ name, value }) => `${name} ${value}`)].join(', ');
