import { csvCell, nameFilter, rowFilter as placeFilter, AggregateError, loadTables } from '../../aggregate';
import { formatCount, formatFull, formatInteger, formatNumber } from '../../charts';
import { STREAMS } from '../../protocol/streams';
import { parseName } from '../../protocol/tensor-name';
import type { MomentFilter, IMomentRows, IMomentGroups, MomentColumn } from '../../store/row-moments';
import { FLOAT, GRADIENT_STAGES, streamName, WHOLE } from '../../store/row-moments';
import { tableOnly, type INote, type Loaded } from '../shared/content';
import type { IState } from '../shared/states';
import { numberColumn, type ITableColumn } from '../shared/table';
import type { Translate } from '../shared/translate';
import { nonFiniteWords, omittedWords, optionWords, trustWords } from './captions';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { axisWords, columnWords, titleWords, type MomentOptions } from './words';

/** Which rows a filter takes, of all steps where they are null: a source may bring more than these. */
export function rowFilter(
  rows: IMomentRows,
  where: MomentFilter,
  steps: readonly [number, number] | null = null
): (at: number) => boolean {
  const [first, last] = steps ?? [-Infinity, Infinity];
  const named = nameFilter(where);
  const taken = rows.names.map(name => named(name, parseName(name)));
  const placed = placeFilter(rows, where);
  return at => {
    const step = rows.step[at] ?? NaN;
    return step >= first && step <= last && taken[rows.nameId[at] ?? -1] === true && placed(at);
  };
}

/** Write the rows themselves as comma-separated values: the columns of the stream. */
export function rowsCsv(rows: IMomentRows, takes: (at: number) => boolean): string {
  const columns = new Map<string, (at: number) => string | number | undefined>([
    ['stat', at => rows.stat[at]],
    ['name', at => rows.names[rows.nameId[at] ?? 0]],
    ...[...WHOLE, ...FLOAT].map(name => [streamName(name), (at: number) => rows[name][at]] as const),
    ['gradient_stage', at => GRADIENT_STAGES[rows.gradientStage[at] ?? 0]]
  ]);
  const fields = STREAMS.moments.fields.filter(({ name }) => columns.has(name)).map(({ name }) => name);
  const written = fields.map(name => columns.get(name) ?? (() => undefined));
  const lines = Array.from(rows.step.keys())
    .filter(takes)
    .map(at => written.map(read => csvCell(read(at))).join(','));
  return [fields.join(','), ...lines].join('\n') + '\n';
}

/** Most rows that a table holds; a download holds all. */
const MOST_ROWS = 100_000;

/** The groups as a table, to be put in order and downloaded. */
export class TablePane extends MomentPane {
  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, by, t } = this;
    const points = Math.max(4, Math.floor(MOST_ROWS / options.series));
    const question = { ...this.question(by), series: options.series };
    const groups = await reader.groups({ ...question, points }, signal);
    if (groups.step.length === 0) {
      return { state: this.nothing() };
    }
    const lines = await this._lines(groups);
    if ('state' in lines) {
      return lines;
    }
    const { columns, rows, caption } = lines;
    const at = (column: ITableColumn): ITableColumn => ({
      ...column,
      text: row => column.text(rows[row] ?? -1),
      ...(column.sortBy ? { sortBy: (row: number) => column.sortBy?.(rows[row] ?? -1) ?? '' } : {})
    });
    const title = titleWords(options, by, groups.step, t);
    const saveGroups: INote = {
      text: t('Groups: %1 rows.', formatInteger(rows.length)),
      action: {
        label: t('Download as CSV'),
        run: () =>
          void this._save('groups', async () => {
            const { groupTable, shapeTable, tableCsv } = await loadTables();
            const table = groupTable(await reader.groups(question), by);
            const followed = caption.length > 0 ? {} : options;
            return tableCsv(shapeTable(table, by, followed), { value: options.statistic });
          })
      }
    };
    const saveRows: INote = {
      text: t('What was logged, a row for each tensor and step.'),
      action: {
        label: t('Download these rows as CSV'),
        run: () => void this._save('rows', () => this._rows())
      }
    };
    return {
      content: {
        ...tableOnly({
          columns: [...columnsOf(groups, by, options, t), ...columns].map(at),
          rows: rows.length
        }),
        title,
        caption: [
          ...caption,
          ...omittedWords(groups, t('groups'), t),
          ...optionWords(options, this.index, t),
          ...(options.runs.length > 0 ? [t('This table shows %1 only.', this.source.name)] : []),
          ...nonFiniteWords(groups, t, false),
          ...trustWords(groups, { ...options, by: [...by] }, t)
        ],
        summary: t('%1: a table of %2 rows.', title, formatInteger(rows.length)),
        notes: [...(await this.notes(reader, signal)), saveGroups, saveRows]
      }
    };
  }

  /** What a person wrote below the table: derived columns, and the rows of the groups that stay. */
  private async _lines(
    groups: IMomentGroups
  ): Promise<{ columns: ITableColumn[]; rows: ArrayLike<number>; caption: string[] } | { state: IState }> {
    const { options, by, t } = this;
    const all = { columns: [], rows: Array.from(groups.step.keys()), caption: [] };
    if (options.derive === null && options.filter === null) {
      return all;
    }
    try {
      const { groupTable, shapeTable } = await loadTables();
      const table = groupTable(groups, by);
      const shaped = shapeTable(table, by, options);
      const made = shaped.columnNames().filter(name => !table.columnNames().includes(name));
      const columns = made.map(name => derivedColumn(name, row => shaped.column(name)?.at(row)));
      return { columns, rows: shaped.indices(), caption: [] };
    } catch (reason) {
      if (reason instanceof AggregateError && reason.code === 'frozen') {
        const why = t(
          'Derived columns and the filter of rows are left out here: this page makes no code from text. JupyterLab shows them.'
        );
        return { ...all, caption: [why] };
      }
      if (reason instanceof AggregateError && reason.code === 'line') {
        const label = t('Clear derived columns and filter of rows');
        const run = (): void => this.choose({ derive: null, filter: null });
        return { state: { kind: 'error', sentence: reason.message, action: { label, run } } };
      }
      throw reason;
    }
  }

  private async _rows(): Promise<string> {
    const { stat, where } = this.options;
    const steps = this.env.within(this.options.steps);
    const rows = await this.source.moments?.rows({ stats: [stat], where, steps });
    if (!rows) {
      throw new Error(
        this.t(
          'These rows are too many for a page. Choose fewer steps or tensors, or read them with run.moments().'
        )
      );
    }
    return rowsCsv(rows, rowFilter(rows, where ?? {}, steps));
  }

  private async _save(what: string, write: () => Promise<string>): Promise<void> {
    try {
      const name = `${this.source.name}-${this.options.stat}-${what}.csv`;
      this.actions.save(name, 'text/csv', await write());
    } catch (reason) {
      this.env.fail(reason);
    }
  }
}

/** A column that a person derived: numbers, texts, or true and false. */
function derivedColumn(name: string, read: (row: number) => unknown): ITableColumn {
  const isNumber = (value: unknown): value is number => typeof value === 'number';
  return {
    title: name,
    isNumber: true,
    text: row => {
      const value = read(row);
      return isNumber(value) ? formatFull(Number(value.toPrecision(9))) : String(value ?? '–');
    },
    sortBy: row => {
      const value = read(row);
      return isNumber(value) ? value : String(value ?? '');
    }
  };
}

function columnsOf(
  groups: IMomentGroups,
  by: readonly MomentColumn[],
  options: MomentOptions,
  t: Translate
): ITableColumn[] {
  const keyAt = (row: number, at: number): string | number | null =>
    groups.keys[groups.group[row] ?? 0]?.[at] ?? null;
  return [
    ...by.map((column, at): ITableColumn => ({
      title: columnWords(column, t),
      text: row => String(keyAt(row, at) ?? '–'),
      sortBy: row => keyAt(row, at) ?? ''
    })),
    numberColumn(t('step'), row => groups.step[row] ?? 0, formatInteger),
    numberColumn(
      axisWords(options, [], t),
      row => groups.value[row] ?? NaN,
      (value, row) =>
        groups.count[row] === 0 && Number.isNaN(value) ? '–' : formatFull(Number(value.toPrecision(9)))
    ),
    numberColumn(t('values'), row => groups.count[row] ?? 0, formatCount),
    // What is known to be some, but not how many, comes first.
    numberColumn(
      t('not finite'),
      row => (Number.isNaN(groups.nonFinite[row]) ? Infinity : (groups.nonFinite[row] ?? 0)),
      count => (count === Infinity ? t('some') : formatInteger(count))
    ),
    ...(groups.error.some(error => error > 0)
      ? [
          numberColumn(
            t('known to ±'),
            row => groups.error[row] ?? 0,
            error => formatNumber(error, 2)
          )
        ]
      : [])
  ];
}
