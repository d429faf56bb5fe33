import type { IMomentGroups, MomentColumn } from '../store/row-moments';
import { AggregateError } from './moment-merge';
import { aq } from './arquero';
import { csvValue } from '../protocol/texts';
import { readDerive, readFilter, type TableColumns } from './table-expression';
import { own } from '../protocol/records';

export { aq, readDerive, readFilter };

export type Table = ReturnType<typeof aq.table>;

/** What a person wrote below a table. */
export interface ITableLines {
  readonly derive?: string | null;
  readonly filter?: string | null;
}

const COUNTED = new Set<string>(['layer', 'expert', 'rank', 'stage']);

/** Columns that a table of groups has beside those of its key. */
const VALUES = ['step', 'samples', 'value', 'count', 'nonfinite', 'error'] as const;

/**
 * Groups as a table of arquero's: the columns of their key, then step, samples, value, count, nonfinite and
 * error.
 */
export function groupTable(groups: IMomentGroups, by: readonly MomentColumn[]): Table {
  const keys = by.map((column, at): [string, unknown[]] => [
    column,
    Array.from(groups.group, group => groups.keys[group]?.[at] ?? null)
  ]);
  const { step, samples, value, count, nonFinite: nonfinite, error } = groups;
  return aq.table([...keys, ...Object.entries({ step, samples, value, count, nonfinite, error })]);
}

/** Most rows that expressions go over: a line's length and this bound the time. */
const MOST_ROWS = 1_000_000;

export function tableColumns(by: readonly MomentColumn[]): TableColumns {
  const keys = by.map(column => [column, COUNTED.has(column) ? 'number' : 'text'] as const);
  return Object.fromEntries([...keys, ...VALUES.map(column => [column, 'number'] as const)]);
}

/**
 * Derive columns and filter rows as a person wrote it. Functions of several rows go over the rows of one
 * group, by step.
 *
 * @throws AggregateError `line`, which names the place; `frozen` where no code may be made from text.
 */
export function shapeTable(
  table: Table,
  by: readonly MomentColumn[],
  { derive, filter }: ITableLines
): Table {
  const columns = tableColumns(by);
  const made = derive?.trim() ? readDerive(derive, columns) : [];
  const all = { ...columns, ...Object.fromEntries(made.map(({ name, type }) => [name, type])) };
  const test = filter?.trim() ? readFilter(filter, all) : null;
  if (made.length === 0 && test === null) {
    return table;
  }
  if (table.numRows() > MOST_ROWS) {
    throw new AggregateError(
      `Derived columns and filters take tables of at most ${MOST_ROWS} rows, got ${table.numRows()}. ` +
        'Choose fewer steps or series.',
      'line'
    );
  }
  try {
    let shaped = by.length > 0 ? table.groupby(...by) : table;
    // One after the other: each may name those before it.
    for (const { name, code } of made) {
      shaped = shaped.derive({ [name]: code });
    }
    return (test === null ? shaped : shaped.filter(test.code)).ungroup();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    // What browsers, Node and the script of a report say where functions are made of text.
    if (error instanceof EvalError || /code (generation )?from (text|strings)|unsafe-eval/i.test(why)) {
      throw new AggregateError('This page makes no code from text.', 'frozen');
    }
    throw new AggregateError(`These columns cannot be derived. ${why}`, 'line');
  }
}

/**
 * A table as comma-separated values, all digits, as pandas and spreadsheets read them. `names` renames
 * columns.
 */
export function tableCsv(table: Table, names: Readonly<Record<string, string>> = {}): string {
  const format = Object.fromEntries(table.columnNames().map(name => [own(names, name) ?? name, csvValue]));
  return table.rename(names).toCSV({ format });
}
