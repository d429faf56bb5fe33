import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import * as React from 'react';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CoursesRequest } from '../../protocol/requests.generated';
import { faultSentence } from '../../views/shared/fault-text';
import type { IRunEntry, IRunSummary, IMegalensRuns } from '../../tokens';
import type { ICourses } from '../../client/courses';
import { formatBytes, formatInteger, formatNumber } from '../../charts/format';
import { startText } from '../../client/run-reader';
import type { PanelModel } from '../shell/panel-model';
import { CompareBar } from '../runs/compare-bar';
import { bytesOf, isDeletable } from '../runs/keep-newest';
import { runMark } from '../runs/run-mark';
import { Select } from '../shell/fields';
import { NoticeBox, PanelButton } from '../shell/section';
import { CourseLine, CoursesPicture, reasonText } from './courses-picture';
import { SmallCourses } from './small-courses';
import {
  MOST_GROUPS,
  MOST_SETTINGS,
  differing,
  filtered,
  formatDuration,
  groupsOf,
  ordered,
  sameColumn,
  tableRows,
  type IOrder,
  type ITableRow
} from './table-rows';

/** A column of every table, or one of a setting in which runs differ. */
interface IColumn {
  readonly by: IOrder['by'];
  readonly title: string;
  readonly help?: string;
  readonly figures?: boolean;
  readonly cell: (row: ITableRow) => React.ReactNode;
}

/** From so many runs on, their courses are drawn beside each other. */
const MANY = 10;
/** Of more rows only those that can be seen are in the page. */
const MOST_ROWS = 200;
/** What a row takes until one was measured, in pixels. */
const ROW_HEIGHT = 29;

interface ICoursesChoice extends Pick<CoursesRequest, 'name'> {
  readonly scale: 'linear' | 'log';
  /** What small pictures are of: tags, or a setting; none where absent. */
  readonly by?: 'tags' | { readonly setting: string };
}

/** All runs: sorted, filtered, several marked, compared, annotated and deleted. */
function RunsTable(props: {
  model: PanelModel;
  summaries: ReadonlyMap<string, IRunSummary>;
  courses: ICourses | null;
  choice: ICoursesChoice;
  choose: (choice: ICoursesChoice) => void;
  pointed: Signal<unknown, string | null>;
}): React.ReactElement {
  const { model, summaries, courses, choice, pointed } = props;
  const { runs, trans } = model;
  const [text, setText] = React.useState('');
  const [chosenOrder, setOrder] = React.useState<IOrder | null>(null);
  const [top, setTop] = React.useState(0);
  const scroll = React.useRef<HTMLDivElement>(null);
  const order: IOrder =
    chosenOrder ??
    (courses === null ? { by: 'started', descending: true } : { by: 'apart', descending: false });
  const stateOf = (entry: IRunEntry): string => markOf(model, entry).words;
  const all = tableRows(runs.entries, withOpen(model, summaries), stateOf, Date.now() / 1000, courses);
  const rows = ordered(filtered(all, text), order);
  const differ = differing(rows);
  const columns = columnsOf(model, differ.slice(0, MOST_SETTINGS), courses);
  const window = windowOf(rows.length, top, scroll.current);
  const show = (id: string): void => {
    const { marked } = runs;
    runs.choose(id);
    runs.mark(marked);
  };
  const marked = new Set(runs.marked);
  const entries = rows.map(({ entry }) => entry);
  const notesOf = ({ notes }: IRunEntry): string => notes || trans.__('add…');
  const chosen = entries.filter(({ id }) => marked.has(id));
  const deletable = chosen.filter(isDeletable);
  const notice = model.listNotice;
  const sort = (by: IOrder['by']): void =>
    setOrder({ by, descending: sameColumn(by, order.by) ? !order.descending : by === 'started' });
  return (
    <>
      <div className="jp-MegalensRunsTable-bar">
        <input
          type="search"
          className="jp-mod-styled"
          placeholder={trans.__('Filter by name, tag, note, state or setting')}
          aria-label={trans.__('Filter the runs')}
          value={text}
          onChange={event => setText(event.target.value)}
        />
        <span className="jp-MegalensRunsTable-count" role="status">
          {countText(rows, all.length, trans)}
        </span>
        {deletable.length > 0 && (
          <PanelButton act={() => void model.actions.remove(deletable)}>
            {trans._n('Delete the recording…', 'Delete %1 recordings…', deletable.length)}
          </PanelButton>
        )}
        {entries.filter(isDeletable).length > 1 && (
          <PanelButton
            title={trans.__('Of the recordings that are shown, keep the newest and delete the rest')}
            act={() => void model.actions.keepNewest(entries)}
          >
            {trans.__('Keep newest…')}
          </PanelButton>
        )}
        <CompareBar model={model} />
      </div>
      {notice !== null && <NoticeBox notice={notice} trans={trans} act={action => void model.act(action)} />}
      {courses !== null && (
        <section aria-label={trans.__('All runs beside each other')}>
          <div className="jp-MegalensCourses-bar">
            <label>
              {trans.__('Number')}{' '}
              <Select
                className="jp-MegalensSelect"
                value={courses.name}
                options={[...new Set([courses.name, ...courses.names])]}
                choose={name => props.choose({ ...choice, name })}
              />
            </label>
            <label>
              <input
                type="checkbox"
                checked={choice.scale === 'log'}
                onChange={event =>
                  props.choose({ ...choice, scale: event.target.checked ? 'log' : 'linear' })
                }
              />{' '}
              {trans.__('Log scale')}
            </label>
            <GroupSelect choice={choice} choose={props.choose} rows={all} trans={trans} />
          </div>
          {courses.runs.length === 0 ? (
            <p className="jp-MegalensHint">{trans.__('No run has this number.')}</p>
          ) : (
            <CoursesPicture
              courses={courses}
              scale={choice.scale}
              nameOf={id => nameOf(runs.entries, id)}
              pointed={pointed}
              point={id => pointed.emit(id)}
              open={show}
              trans={trans}
            />
          )}
          {courses.groups.length > 0 && <SmallCourses courses={courses} scale={choice.scale} trans={trans} />}
        </section>
      )}
      {all.length > 0 && (
        <div
          className="jp-MegalensRunsTable-scroll"
          ref={scroll}
          onScroll={event => {
            // In steps of ten rows: the table is drawn anew for each.
            const step = 10 * ROW_HEIGHT;
            setTop(Math.floor(event.currentTarget.scrollTop / step) * step);
          }}
        >
          <table>
            <thead>
              <tr>
                <th scope="col">
                  <input
                    type="checkbox"
                    aria-label={trans.__('Mark all runs that are shown')}
                    checked={rows.length > 0 && chosen.length === rows.length}
                    onChange={event => runs.mark(event.target.checked ? entries.map(({ id }) => id) : [])}
                  />
                </th>
                {columns.map(({ by, title, help, figures }) => {
                  const sorted = sameColumn(by, order.by);
                  return (
                    <th
                      key={JSON.stringify(by)}
                      scope="col"
                      className={figures ? 'jp-mod-figures' : undefined}
                      aria-sort={sorted ? (order.descending ? 'descending' : 'ascending') : undefined}
                    >
                      <button type="button" title={help ?? title} onClick={() => sort(by)}>
                        {title}
                        <span aria-hidden="true">{sorted ? (order.descending ? ' ▾' : ' ▴') : ''}</span>
                      </button>
                    </th>
                  );
                })}
                <th scope="col">{trans.__('Notes')}</th>
              </tr>
            </thead>
            <tbody>
              {window.before > 0 && (
                <tr aria-hidden="true" className="jp-mod-space" style={{ height: window.before }} />
              )}
              {rows.slice(window.first, window.end).map(row => (
                <tr
                  key={row.entry.id}
                  data-run={row.entry.id}
                  onMouseEnter={() => pointed.emit(row.entry.id)}
                  onMouseLeave={() => pointed.emit(null)}
                  onFocus={() => pointed.emit(row.entry.id)}
                  className={row.entry.id === runs.chosenId ? 'jp-mod-chosen' : undefined}
                >
                  <td>
                    <input
                      type="checkbox"
                      aria-label={trans.__('Mark %1', row.entry.name)}
                      checked={marked.has(row.entry.id)}
                      onChange={() =>
                        runs.mark(
                          marked.has(row.entry.id)
                            ? [...marked].filter(id => id !== row.entry.id)
                            : [...marked, row.entry.id]
                        )
                      }
                    />
                  </td>
                  {columns.map(({ by, figures, cell }) => (
                    <td key={JSON.stringify(by)} className={figures ? 'jp-mod-figures' : undefined}>
                      {cell(row)}
                    </td>
                  ))}
                  <td className="jp-MegalensRunsTable-notes" title={row.entry.notes}>
                    {row.entry.bytes === undefined ? (
                      ''
                    ) : (
                      <PanelButton
                        className="jp-MegalensLink"
                        aria-label={trans.__('Notes and tags of %1: %2', row.entry.name, notesOf(row.entry))}
                        act={() => void model.actions.annotate(row.entry)}
                      >
                        {notesOf(row.entry)}
                      </PanelButton>
                    )}
                  </td>
                </tr>
              ))}
              {window.after > 0 && (
                <tr aria-hidden="true" className="jp-mod-space" style={{ height: window.after }} />
              )}
            </tbody>
          </table>
          {rows.length === 0 && <p className="jp-MegalensHint">{trans.__('No run matches the filter.')}</p>}
          {differ.length > MOST_SETTINGS && (
            <p className="jp-MegalensHint">
              {trans.__(
                'Runs differ in %1 more settings: %2. Filter, and fewer are left.',
                differ.length - MOST_SETTINGS,
                differ.slice(MOST_SETTINGS, MOST_SETTINGS + 20).join(', ')
              )}
            </p>
          )}
        </div>
      )}
    </>
  );
}

/** What small pictures are made of: tags, or a setting that few values of many runs have in common. */
function GroupSelect(props: {
  choice: ICoursesChoice;
  choose: (choice: ICoursesChoice) => void;
  rows: readonly ITableRow[];
  trans: TranslationBundle;
}): React.ReactElement {
  const { choice, choose, rows, trans } = props;
  const isShared = (setting: string): boolean =>
    new Set(rows.map(({ settings }) => settings.get(setting))).size <= MOST_GROUPS;
  const settings = differing(rows).filter(isShared);
  const hasTags = rows.some(({ entry }) => (entry.tags ?? []).length > 0);
  const { by, ...rest } = choice;
  const value = by === undefined ? '' : by === 'tags' ? 'tags' : `setting ${by.setting}`;
  return (
    <label>
      {trans.__('Small pictures by')}{' '}
      <Select
        className="jp-MegalensSelect"
        value={value}
        options={[
          ['', trans.__('nothing')],
          ...(hasTags ? [['tags', trans.__('tags')] as const] : []),
          ...settings.map(setting => [`setting ${setting}`, setting] as const)
        ]}
        choose={chosen =>
          choose({
            ...rest,
            ...(chosen === 'tags'
              ? { by: 'tags' as const }
              : chosen !== '' && { by: { setting: chosen.slice('setting '.length) } })
          })
        }
      />
    </label>
  );
}

const nameOf = (entries: readonly IRunEntry[], id: string): string =>
  entries.find(entry => entry.id === id)?.name ?? id;

/** Which rows are in the page, and what those above and below would take, in pixels. */
function windowOf(
  count: number,
  top: number,
  scroll: HTMLElement | null
): { first: number; end: number; before: number; after: number } {
  if (count <= MOST_ROWS) {
    return { first: 0, end: count, before: 0, after: 0 };
  }
  const height = scroll?.querySelector('tr[data-run]')?.getBoundingClientRect().height || ROW_HEIGHT;
  const shown = Math.min(MOST_ROWS, Math.ceil((scroll?.clientHeight ?? 0) / height) + 40);
  const first = Math.max(0, Math.min(Math.floor(top / height) - 20, count - shown));
  const end = Math.min(count, first + shown);
  return { first, end, before: first * height, after: (count - end) * height };
}

function columnsOf(model: PanelModel, settings: readonly string[], courses: ICourses | null): IColumn[] {
  const { trans, runs } = model;
  return [
    {
      by: 'name',
      title: trans.__('Name'),
      cell: ({ entry }) => (
        <PanelButton
          className="jp-MegalensLink"
          title={trans.__('Show this run in the panel')}
          act={() => {
            const { marked } = runs;
            runs.choose(entry.id);
            runs.mark(marked);
          }}
        >
          {entry.name}
        </PanelButton>
      )
    },
    ...(courses === null ? [] : courseColumns(courses, trans)),
    {
      by: 'state',
      title: trans.__('State'),
      cell: ({ entry, state }) => (
        <span className={`jp-MegalensRun-state jp-mod-${markOf(model, entry).kind}`}>
          <span className="jp-MegalensRun-mark" aria-hidden="true">
            {markOf(model, entry).symbol}
          </span>{' '}
          {state}
        </span>
      )
    },
    { by: 'started', title: trans.__('Started'), cell: ({ entry }) => startText(entry) },
    {
      by: 'step',
      title: trans.__('Steps'),
      figures: true,
      cell: ({ entry }) => (entry.step === null ? '–' : formatInteger(entry.step))
    },
    {
      by: 'loss',
      title: trans.__('Last loss'),
      figures: true,
      cell: ({ loss }) =>
        loss === null ? (
          '–'
        ) : (
          <span title={trans.__('%1 at step %2', loss.name, formatInteger(loss.step))}>
            {formatNumber(loss.value)}
          </span>
        )
    },
    {
      by: 'duration',
      title: trans.__('Duration'),
      figures: true,
      cell: ({ duration }) => (Number.isNaN(duration) ? '–' : formatDuration(duration))
    },
    ...settings.map((setting): IColumn => ({
      by: { setting },
      title: setting.slice(setting.indexOf('.') + 1),
      help: setting,
      figures: true,
      cell: row => settingText(row, setting, trans)
    })),
    {
      by: 'tags',
      title: trans.__('Tags'),
      cell: ({ entry }) =>
        (entry.tags ?? []).map(tag => (
          <span key={tag} className="jp-MegalensTag">
            {tag}
          </span>
        ))
    },
    {
      by: 'bytes',
      title: trans.__('Size'),
      help: trans.__('What the recording takes on the disk'),
      figures: true,
      cell: ({ entry }) => (entry.bytes === undefined ? '–' : formatBytes(entry.bytes))
    }
  ];
}

/** A run's course, and how far it is from the others. */
function courseColumns({ name }: ICourses, trans: TranslationBundle): IColumn[] {
  return [
    {
      by: 'apart',
      title: trans.__('Course'),
      help: trans.__('%1 by step, from least to greatest; outliers first', name),
      cell: ({ course }) =>
        course === undefined ? (
          '–'
        ) : (
          <span title={reasonText(course, trans)}>
            <CourseLine course={course} />
            {course.distance === null ? '–' : trans.__('%1 apart', formatNumber(course.distance, 3))}
          </span>
        )
    }
  ];
}

function settingText({ settings }: ITableRow, name: string, trans: TranslationBundle): string {
  const value = settings.get(name);
  switch (typeof value) {
    case 'number':
      return Number.isInteger(value) ? formatInteger(value) : formatNumber(value);
    case 'boolean':
      return value ? trans.__('yes') : trans.__('no');
    case 'string':
      return value;
    case 'undefined':
      return '–';
  }
}

const markOf = (model: PanelModel, entry: IRunEntry): ReturnType<typeof runMark> =>
  runMark(entry, model.open?.id === entry.id ? model.open : null, model.trans);

/** What the server says, and of the chosen run what the page itself knows and is newer. */
function withOpen(
  { open }: PanelModel,
  summaries: ReadonlyMap<string, IRunSummary>
): ReadonlyMap<string, IRunSummary> {
  const loss = open?.summary.loss ?? null;
  const known = open === null ? undefined : summaries.get(open.id);
  return open === null || loss === null || loss.step < (known?.loss?.step ?? 0)
    ? summaries
    : new Map([...summaries, [open.id, { loss, settings: known?.settings ?? new Map() }]]);
}

function countText(rows: readonly ITableRow[], all: number, trans: TranslationBundle): string {
  const bytes = bytesOf(rows.map(({ entry }) => entry));
  const runs =
    rows.length === all
      ? trans._n('%1 run', '%1 runs', all)
      : trans.__('%1 of %2 runs', formatInteger(rows.length), formatInteger(all));
  return bytes === 0 ? runs : trans.__('%1, %2 on the disk', runs, formatBytes(bytes));
}

/** How often the server is asked while the table can be seen, in milliseconds. */
const ASK_EVERY = 5000;
/** And for the courses of many runs. */
const COMPARE_EVERY = 60_000;
/** As many as the server compares. */
const MOST_COMPARED = 5000;

/** The table of runs in the main area. Shows the panel's model, and polls the server only while visible. */
export class RunsTableWidget extends ReactWidget {
  constructor(
    private readonly _model: PanelModel,
    private readonly _runs: Pick<IMegalensRuns, 'summaries' | 'courses'>
  ) {
    super();
    this.addClass('jp-MegalensRunsTable');
    this._model.changed.connect(this._onModel, this);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      clearTimeout(this._timer);
      this._model.changed.disconnect(this._onModel, this);
      Signal.clearData(this);
      super.dispose();
    }
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._changed}>
        {() => (
          <>
            {this._fault !== null && (
              <p className="jp-MegalensHint" role="status">
                {this._model.trans.__('Losses and settings could not be read: %1', this._fault)}
              </p>
            )}
            <RunsTable
              model={this._model}
              summaries={this._summaries}
              courses={this._courses}
              choice={this._choice}
              choose={choice => {
                this._choice = choice;
                this._compared = 0;
                this._changed.emit();
                void this._compare();
              }}
              pointed={this._pointed}
            />
          </>
        )}
      </UseSignal>
    );
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    void this._ask();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    void this._ask();
  }

  private _onModel(): void {
    if (this.isVisible) {
      this._changed.emit();
    }
  }

  private async _ask(): Promise<void> {
    clearTimeout(this._timer);
    if (this.isDisposed || !this.isVisible) {
      return;
    }
    try {
      const [summaries] = await Promise.all([this._runs.summaries(), this._model.runs.refresh()]);
      this._summaries = summaries;
      this._fault = null;
      await this._compare();
    } catch (error) {
      this._fault = faultSentence(error);
    }
    if (!this.isDisposed) {
      this._changed.emit();
      clearTimeout(this._timer);
      this._timer = setTimeout(() => void this._ask(), ASK_EVERY);
    }
  }

  /** Ask for the courses of many runs, unless they were answered a moment ago. */
  private async _compare(): Promise<void> {
    const recorded = this._model.runs.entries.filter(({ bytes }) => bytes !== undefined);
    if (recorded.length < MANY) {
      this._courses = null;
      return;
    }
    const now = Date.now();
    if (now - this._compared < COMPARE_EVERY) {
      return;
    }
    this._compared = now;
    const choice = this._choice;
    try {
      const { by, ...rest } = choice;
      const chosen = recorded.slice(0, MOST_COMPARED);
      const rows = chosen.map(entry => ({
        entry,
        settings: this._summaries.get(entry.id)?.settings ?? new Map()
      }));
      const groups = by && groupsOf(rows, by, this._model.trans.__('none'));
      const found = await this._runs.courses({
        ...rest,
        runs: chosen.map(({ id }) => id),
        ...(groups && { groups })
      });
      if (choice === this._choice) {
        this._courses = found;
        this._fault = null;
      }
    } catch (error) {
      this._fault = faultSentence(error);
    }
    if (!this.isDisposed) {
      this._changed.emit();
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _pointed = new Signal<unknown, string | null>(this);
  private _courses: ICourses | null = null;
  private _choice: ICoursesChoice = { scale: 'linear' };
  private _compared = 0;
  private _summaries: ReadonlyMap<string, IRunSummary> = new Map();
  private _fault: string | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
