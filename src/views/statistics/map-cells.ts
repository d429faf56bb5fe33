import { MOST_CHARACTERS } from '../../aggregate/moment-keys';
import { greatestOf, middleOf, telling, type IMatrix } from '../../charts';
import type { MomentFilter } from '../../protocol/views.generated';
import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/row-moments';
import { smallestGap } from '../kits/matrix/over-steps';
import { nearestIndex } from '../shared/scale';
import { spans } from './line';
import { oneTensor } from './name-facts';
import type { MomentOptions } from './words';

/** Groups by columns of the x axis, and what each column covers. */
export interface IMapCells extends IMatrix {
  readonly values: Float64Array;
  readonly missing: Uint8Array;
  /** Row of the groups that each cell shows; -1 where there is none. */
  readonly source: Int32Array;
  /** Left edge of the first column and width of each. */
  readonly x: number;
  readonly width: number;
  /** Whether a column stands for several steps somewhere. */
  readonly merged: boolean;
}

/** Most steps of a row that a map asks for; of more come the ends and extremes of a quarter as many spans. */
export const MOST_POINTS = 4096;

/** Most columns, and cells, of a picture. */
const MOST_COLUMNS = 2048;
const MOST_CELLS = 4_000_000;

interface ICellsRequest {
  /** Whether cells in which values are not finite are drawn as such. */
  readonly hatch: boolean;
  /**
   * Whether values were left out in favour of their extremes: a cell between two others then stands for them
   * too.
   */
  readonly bridge: boolean;
}

/**
 * Put groups into cells, one row a group. Where several steps share a column the one that is not finite is
 * shown, else the one that says most: a spike of one step is never under others.
 *
 * @param places - Where each row of the groups lies.
 * @param xs - Every such position, ascending.
 */
export function cellsOf(
  groups: IMomentGroups,
  places: Float64Array,
  xs: readonly number[],
  wish: ICellsRequest
): IMapCells {
  const [first, last] = [xs[0] ?? 0, xs[xs.length - 1] ?? 0];
  const even = smallestGap(xs);
  const wanted = Math.round((last - first) / even) + 1;
  // Steps that lie far apart and unevenly get a column each only as far as there is room; one that holds less
  // than a span of thinned steps could be empty where nothing is missing.
  const most = wish.bridge ? MOST_POINTS / 4 : MOST_COLUMNS;
  const columns = Math.max(1, Math.min(wanted, most, Math.floor(MOST_CELLS / groups.keys.length)));
  const width = columns === 1 ? even : (last - first) / (columns - 1);
  const rows = groups.keys.length;
  const source = new Int32Array(rows * columns).fill(-1);
  let merged = false;
  const greatest = greatestOf(groups.value);
  spans(groups).forEach(([from, to], row) => {
    const middle = middleOf(groups.value, Infinity, from, to);
    const rank = (at: number): number => {
      const value = groups.value[at] ?? NaN;
      const isNone = Number.isNaN(value) && groups.nonFinite[at] === 0;
      return groups.nonFinite[at] !== 0 ? Infinity : isNone ? -1 : telling(value, middle, greatest);
    };
    for (let at = from; at < to; at += 1) {
      const column = Math.min(columns - 1, Math.max(0, Math.round(((places[at] ?? first) - first) / width)));
      const cell = row * columns + column;
      const before = source[cell] ?? -1;
      merged ||= before >= 0;
      if (before < 0 || rank(at) > rank(before)) {
        source[cell] = at;
      }
    }
    if (wish.bridge) {
      bridge(source, row * columns, columns, xs, first, width);
    }
  });
  const missing = new Uint8Array(source.length);
  const values = new Float64Array(source.length).fill(NaN);
  source.forEach((at, cell) => {
    const finite = groups.nonFinite[at] === 0;
    missing[cell] = at < 0 || (groups.count[at] === 0 && finite) ? 1 : 0;
    // A cell in which something is not finite says so rather than what the rest of it is.
    if (at >= 0 && (finite || !wish.hatch)) {
      values[cell] = groups.value[at] ?? NaN;
    }
  });
  return {
    rows,
    columns,
    values,
    missing,
    source,
    x: first - width / 2,
    width,
    merged: merged || wanted > columns
  };
}

/**
 * Let a cell stand for a neighbouring column that has steps, but none of its row: those were left out in
 * favour of their extremes.
 */
function bridge(
  source: Int32Array,
  from: number,
  columns: number,
  xs: readonly number[],
  first: number,
  width: number
): void {
  for (let column = 1; column + 1 < columns; column += 1) {
    const before = source[from + column - 1] ?? -1;
    const between = source[from + column] === -1 && before >= 0 && (source[from + column + 1] ?? -1) >= 0;
    const x = first + column * width;
    if (between && Math.abs((xs[nearestIndex(xs, x)] ?? Infinity) - x) <= width / 2) {
      source[from + column] = before;
    }
  }
}

/** Options that say what a map is of. */
type MapOptions = Pick<MomentOptions, 'along' | 'by' | 'cells' | 'columns' | 'kind' | 'where'>;

/** What lines of cells go over. */
export type Along = Exclude<MomentOptions['along'], 'auto'>;

/** A cell: the key of its row, and the number of its column. */
export interface IMapCell {
  readonly key: MomentKey;
  readonly x: number;
}

/** Whether a kind is a map. */
export const isMap = (kind: MomentOptions['kind']): boolean => /(?:^|_)map$/.test(kind);

export function mapRows({ kind, by, columns }: MapOptions): readonly MomentColumn[] {
  const rows: readonly MomentColumn[] =
    kind === 'layer_map' ? ['layer'] : kind === 'item_map' ? ['item_type'] : (by ?? []);
  return rows.filter(row => row !== columns);
}

/**
 * Columns that make a group of a map: those of its rows, and the one that lies across where that is not the
 * step.
 */
export function mapGrouping(options: MapOptions): readonly MomentColumn[] {
  return [...mapRows(options), ...(options.columns === 'step' ? [] : [options.columns])];
}

/** What the lines of chosen cells go over. */
export function alongOf(options: MapOptions): Along {
  const { along, columns, where } = options;
  const rows = mapRows(options);
  if (along !== 'auto') {
    // Along a row's or column's own there is one value only.
    return along === 'step' || ![...rows, columns].includes(along) ? along : 'step';
  }
  const fixed = columns !== 'step' ? null : rows.includes('rank') ? 'name' : 'rank';
  return fixed !== null && (where?.[fixed] ?? 'all') !== 'all' ? fixed : 'step';
}

/** Write a cell as the options hold it. */
export const cellText = ({ key, x }: IMapCell): string => JSON.stringify([...key, x]);

/** The chosen cells; those that are of another map are left out. */
export function cellsChosen(options: MapOptions): readonly IMapCell[] {
  const rows = mapRows(options);
  return (options.cells ?? []).flatMap(text => {
    const cell = cellOf(text);
    return cell?.key.length === rows.length ? [cell] : [];
  });
}

function cellOf(text: string): IMapCell | null {
  try {
    const values: unknown = JSON.parse(text);
    const key = Array.isArray(values) ? (values as unknown[]) : [];
    const x = key.pop();
    return typeof x === 'number' && key.every(isValue) ? { key, x } : null;
  } catch {
    return null;
  }
}

const isValue = (value: unknown): value is MomentKey[number] =>
  value === null || typeof value === 'string' || typeof value === 'number';

/** The options once a cell was clicked: its line is drawn, or not any more. */
export function toggled(options: MapOptions, cell: IMapCell, most: number): string[] {
  const [text, isRow] = [cellText(cell), options.columns === 'step' && alongOf(options) === 'step'];
  const row = JSON.stringify(cell.key);
  const same = (each: IMapCell): boolean =>
    isRow ? JSON.stringify(each.key) === row : cellText(each) === text;
  const before = cellsChosen(options);
  const rest = before.filter(each => !same(each));
  return (rest.length < before.length ? rest : [...rest, cell]).slice(-most).map(cellText);
}

/** A filter that lets through one group and as little else as it can. */
export function narrowed(
  where: MomentFilter | undefined,
  by: readonly MomentColumn[],
  key: MomentKey
): MomentFilter {
  return by.reduce<MomentFilter>((filter, column, at) => {
    const value = key[at] ?? null;
    if (value === null || column === 'capture') {
      return filter;
    }
    if (column === 'name') {
      const name = oneTensor(String(value)).where.name;
      return name.length > MOST_CHARACTERS ? filter : { ...filter, name };
    }
    return { ...filter, [column]: typeof value === 'number' ? String(value) : [value] };
  }, where ?? {});
}
