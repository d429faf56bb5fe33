import type { ICourses, IRunCourse } from '../../client/courses';
import type { RunSetting } from '../../client/runs-api';
import { runLabel } from '../../client/run-reader';
import type { IRunEntry, IRunSummary } from '../../tokens';

/** Write seconds as people read them: `48 s`, `12 min`, `3 h 05 min`, `2 d 4 h`. */
export function formatDuration(seconds: number): string {
  const rounded = Math.round(seconds);
  const minutes = Math.floor(rounded / 60);
  const hours = Math.floor(minutes / 60);
  if (rounded < 60) {
    return `${rounded}\u00a0s`;
  }
  if (minutes < 60) {
    return `${minutes}\u00a0min`;
  }
  return hours < 24
    ? `${hours}\u00a0h ${String(minutes % 60).padStart(2, '0')}\u00a0min`
    : `${Math.floor(hours / 24)}\u00a0d ${hours % 24}\u00a0h`;
}

/** Most settings that have a column of their own. */
export const MOST_SETTINGS = 8;

/** What a column is ordered by; null stands last, whichever way. */
type Key = string | number | null;

export interface ITableRow {
  readonly entry: IRunEntry;
  readonly state: string;
  /** The loss that came last, or null where none is known. */
  readonly loss: IRunSummary['loss'];
  /** Seconds from its start to its end, or to now. */
  readonly duration: number;
  readonly settings: ReadonlyMap<string, RunSetting>;
  /** Its course beside those of the others, with its place among them: outliers come first. */
  readonly course?: IRunCourse;
  readonly place?: number;
}

/** By what rows are ordered: one of the table's own columns, or a setting. */
export interface IOrder {
  readonly by:
    | 'name'
    | 'state'
    | 'started'
    | 'step'
    | 'loss'
    | 'duration'
    | 'tags'
    | 'bytes'
    | 'apart'
    | { setting: string };
  readonly descending: boolean;
}

export function sameColumn(a: IOrder['by'], b: IOrder['by']): boolean {
  return typeof a === 'object' && typeof b === 'object' ? a.setting === b.setting : a === b;
}

/**
 * Make the rows of the runs that are listed.
 * @param now - Seconds since the epoch.
 */
export function tableRows(
  entries: readonly IRunEntry[],
  summaries: ReadonlyMap<string, IRunSummary>,
  stateOf: (entry: IRunEntry) => string,
  now: number,
  courses: ICourses | null = null
): ITableRow[] {
  const places = new Map(courses?.runs.map(({ id }, place) => [id, place]));
  return entries.map(entry => {
    const { loss = null, settings = new Map<string, RunSetting>() } = summaries.get(entry.id) ?? {};
    // What nobody closed ended at a time that nobody knows.
    const end = entry.ended ?? (entry.state === 'live' ? now : NaN);
    const row = { entry, state: stateOf(entry), loss, duration: Math.max(0, end - entry.started), settings };
    const place = places.get(entry.id);
    const course = place === undefined ? undefined : courses?.runs[place];
    return place === undefined || course === undefined ? row : { ...row, place, course };
  });
}

/** The rows in which every word of a text occurs: name, state, tags, notes, or a setting such as `tp=2`. */
export function filtered(rows: readonly ITableRow[], text: string): ITableRow[] {
  const words = text
    .toLowerCase()
    .split(/\s+/)
    .filter(word => word !== '');
  return rows.filter(({ entry, state, settings }) => {
    const texts = [
      runLabel(entry),
      entry.id,
      state,
      ...(entry.tags ?? []),
      entry.notes ?? '',
      ...[...settings].map(([name, value]) => `${name}=${value}`)
    ];
    const all = texts.join('\n').toLowerCase();
    return words.every(word => all.includes(word));
  });
}

/** As many groups as the server answers at once. */
export const MOST_GROUPS = 24;

/** Places of rows, by what they have in common. */
export interface IRowGroup {
  readonly name: string;
  readonly runs: number[];
}

/**
 * Rows by their tags or by the value of a setting, the largest groups of many; ordered by name.
 * @param without - What those are called that have none.
 */
export function groupsOf(
  rows: readonly Pick<ITableRow, 'entry' | 'settings'>[],
  by: 'tags' | { setting: string },
  without: string
): IRowGroup[] {
  const groups = new Map<string, number[]>();
  rows.forEach(({ entry, settings }, at) => {
    const value = by === 'tags' ? undefined : settings.get(by.setting);
    const names = by === 'tags' ? (entry.tags ?? []) : value === undefined ? [] : [String(value)];
    for (const name of names.length > 0 ? names : [without]) {
      groups.set(name, [...(groups.get(name) ?? []), at]);
    }
  });
  return [...groups]
    .map(([name, runs]) => ({ name: name.slice(0, 200), runs }))
    .sort((a, b) => b.runs.length - a.runs.length)
    .slice(0, MOST_GROUPS)
    .sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

/** The rows in order; those without a value stand last, and what is equal stays as it was. */
export function ordered(rows: readonly ITableRow[], { by, descending }: IOrder): ITableRow[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [keyOf(a, by), keyOf(b, by)];
    if (x === null || y === null) {
      return Number(x === null) - Number(y === null);
    }
    return typeof x === 'number' && typeof y === 'number'
      ? sign * (x - y)
      : sign * String(x).localeCompare(String(y), undefined, { numeric: true });
  });
}

/**
 * The settings in which runs differ, those of the model first and those of installed versions last. A run
 * that does not have a setting differs from one that has; of one of which no settings are known nothing is
 * said.
 */
export function differing(rows: readonly ITableRow[]): string[] {
  const known = rows.map(({ settings }) => settings).filter(settings => settings.size > 0);
  const names = [...new Set(known.flatMap(settings => [...settings.keys()]))];
  const place = (name: string): number => {
    const at = ['model.', 'layout.', 'config.'].findIndex(each => name.startsWith(each));
    return at < 0 ? 3 : at;
  };
  return names
    .filter(name => new Set(known.map(settings => settings.get(name))).size > 1)
    .sort((a, b) => place(a) - place(b));
}

function keyOf({ entry, state, loss, duration, settings, place }: ITableRow, by: IOrder['by']): Key {
  if (typeof by === 'object') {
    const value = settings.get(by.setting);
    return value === undefined ? null : typeof value === 'boolean' ? Number(value) : value;
  }
  switch (by) {
    case 'name':
      return runLabel(entry);
    case 'state':
      return state;
    case 'started':
      return entry.started;
    case 'step':
      return entry.step;
    case 'loss':
      // One that is not finite is worse than any.
      return loss === null ? null : Number.isNaN(loss.value) ? Infinity : loss.value;
    case 'duration':
      return Number.isNaN(duration) ? null : duration;
    case 'tags':
      return entry.tags?.join(', ') || null;
    case 'apart':
      return place ?? null;
    case 'bytes':
      return entry.bytes ?? null;
  }
}
