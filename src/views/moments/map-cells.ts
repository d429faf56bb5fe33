import type { IMatrix } from '../../charts';
import { placeNear } from '../shared/places';
import type { IMomentGroups } from '../../store/moment-source';
import { spans } from './line';

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

/** Most columns, and cells, of a picture. */
const MOST_COLUMNS = 2048;
const MOST_CELLS = 4_000_000;

/** How groups become cells. */
interface ICellsWish {
  /** Whether cells in which values are not finite are drawn as such. */
  readonly hatch: boolean;
  /** Whether values were left out in favour of their extremes: a cell between two others then stands for them too. */
  readonly bridge: boolean;
}

/**
 * Put groups into cells, one row a group. Where several steps share a column the one that is not finite is shown, else the one farthest from the
 * middle of its group: a spike of one step is never under others.
 *
 * @param places - Where each row of the groups lies.
 * @param xs - Every such place, ascending.
 */
export function cellsOf(
  groups: IMomentGroups,
  places: Float64Array,
  xs: readonly number[],
  wish: ICellsWish
): IMapCells {
  const [first, last] = [xs[0] ?? 0, xs[xs.length - 1] ?? 0];
  const gap = xs.reduce(
    (least, x, at) => (at > 0 ? Math.min(least, x - (xs[at - 1] ?? 0)) : least),
    Infinity
  );
  const even = Number.isFinite(gap) && gap > 0 ? gap : 1;
  const wanted = Math.round((last - first) / even) + 1;
  // Steps that lie far apart and unevenly get a column each only as far as there is room.
  const columns = Math.max(1, Math.min(wanted, MOST_COLUMNS, Math.floor(MOST_CELLS / groups.keys.length)));
  const width = columns === 1 ? even : (last - first) / (columns - 1);
  const rows = groups.keys.length;
  const source = new Int32Array(rows * columns).fill(-1);
  let merged = false;
  spans(groups).forEach(([from, to], row) => {
    const middle = medianOf(groups.value.subarray(from, to));
    const rank = (at: number): number => {
      const value = groups.value[at] ?? NaN;
      const bad = groups.nonFinite[at] !== 0 || Math.abs(value) === Infinity;
      return bad ? Infinity : Number.isNaN(value) ? -1 : Math.abs(value - middle);
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

/** Let a cell stand for a column beside it that has steps, but none of its row: those were left out in favour of their extremes. */
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
    if (between && Math.abs((xs[placeNear(xs, x)] ?? Infinity) - x) <= width / 2) {
      source[from + column] = before;
    }
  }
}

function medianOf(values: Float64Array): number {
  const finite = values.filter(Number.isFinite).sort();
  return finite[finite.length >> 1] ?? 0;
}
