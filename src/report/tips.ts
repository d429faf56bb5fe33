import type { IPlace } from '../charts/frames';
import { formatInteger, formatNumber } from '../charts/format';
import type { IMatrix } from '../charts/pixels';
import type { ITip } from '../views/shared/tip';
import { rowsOf, type ILiveView } from './payload';

const MOST_LINES = 12;

/** Says what lies under the pointer. */
export type Tips = (place: IPlace) => ITip | null;

/** Tooltips of a heatmap: the value of the cell, read from the matrix. */
export function cellTips(live: ILiveView, shown: () => ReadonlyMap<number, IMatrix>): Tips {
  return place => {
    const layer = Number(place.frame.facet['layer']);
    const matrix = shown().get(layer);
    const [column, row] = [Math.round(place.x), Math.round(place.y)];
    if (!matrix || column < 0 || row < 0 || column >= matrix.columns || row >= matrix.rows) {
      return null;
    }
    const token = live.tokens?.[column];
    const across = formatInteger(column) + (token === undefined ? '' : ` “${token}”`);
    return {
      heading: `layer ${layer}`,
      lines: [
        // Half floats hold three digits.
        { name: 'value', value: formatNumber(matrix.values[row * matrix.columns + column] ?? NaN, 3) },
        { name: live.axes.x, value: across },
        ...(live.axes.y ? [{ name: live.axes.y, value: formatInteger(row) }] : [])
      ]
    };
  };
}

/** Tooltips of a layer × step picture. */
export function trendCellTips(live: ILiveView): Tips {
  const byLayer = series(rowsOf(live.cells ?? {}), 'layer', 'step');
  return place => {
    const layer = Math.round(place.y);
    const found = nearest(byLayer.get(layer) ?? [], place.x);
    return (
      found && {
        heading: `layer ${layer}, step ${formatInteger(found.x)}`,
        lines: [line('value', found.value)]
      }
    );
  };
}

/** Tooltips of trend lines: every layer at the nearest step. */
export function trendTips(live: ILiveView): Tips {
  const byLayer = series(rowsOf(live.datasets['rows'] ?? {}), 'layer', 'step');
  return place => listed(byLayer, place, name => `layer ${String(name)}`);
}

/** Tooltips of scalars: every name of the panel at the nearest place. */
export function scalarTips(live: ILiveView): Tips {
  const rows = rowsOf(live.datasets['rows'] ?? {}).filter(row => row['kind'] === 'line');
  return place => {
    const panel = place.frame.facet['panel'];
    const byName = series(
      rows.filter(row => row['panel'] === panel),
      'name',
      'x'
    );
    return listed(byName, place, String, live.axes.x.startsWith('time') ? timeWords : undefined);
  };
}

/** Tooltips of groups of tensors: every group at the nearest place, the nearest group to the pointer first. */
export function momentTips(live: ILiveView): Tips {
  const rows = rowsOf(live.datasets['rows'] ?? {}).filter(row => row['opacity'] === 1);
  const byName = series([...rows, ...rowsOf(live.datasets['bars'] ?? {})], 'name', 'x');
  const heading = (x: number): string => `${live.axes.x} ${formatInteger(x)}`;
  return place => {
    const near = [...byName].sort((a, b) => away(a[1], place) - away(b[1], place));
    return listed(new Map(near), place, String, heading);
  };
}

/** Tooltips of a group × step picture. */
export function momentCellTips(live: ILiveView): Tips {
  const rows = rowsOf(live.cells ?? {});
  const names = new Map(rows.map(row => [row['layer'], String(row['name'])]));
  const byRow = series(rows, 'layer', 'step');
  return place => {
    const row = Math.round(place.y);
    const found = nearest(byRow.get(row) ?? [], place.x);
    return (
      found && {
        heading: `${names.get(row) ?? ''}, step ${formatInteger(found.x)}`,
        lines: [line('value', found.value)]
      }
    );
  };
}

/** How far a line is from the pointer, upwards or downwards. */
function away(points: readonly IPoint[], { x, y }: IPlace): number {
  const value = nearest(points, x)?.value ?? NaN;
  return Number.isFinite(value) ? Math.abs(value - y) : Infinity;
}

interface IPoint {
  x: number;
  value: number;
}

function series(rows: readonly Record<string, unknown>[], by: string, x: string): Map<unknown, IPoint[]> {
  const found = new Map<unknown, IPoint[]>();
  for (const row of rows) {
    const points = found.get(row[by]) ?? [];
    points.push({ x: Number(row[x]), value: row['value'] === null ? NaN : Number(row['value']) });
    found.set(row[by], points);
  }
  return found;
}

function nearest(points: readonly IPoint[], x: number): IPoint | null {
  return points.reduce<IPoint | null>(
    (best, point) => (best === null || Math.abs(point.x - x) < Math.abs(best.x - x) ? point : best),
    null
  );
}

function listed(
  all: ReadonlyMap<unknown, readonly IPoint[]>,
  place: IPlace,
  name: (key: unknown) => string,
  headingOf = (x: number): string => `step ${formatInteger(x)}`
): ITip | null {
  const at = nearest(
    [...all.values()].flatMap(points => nearest(points, place.x) ?? []),
    place.x
  );
  if (at === null) {
    return null;
  }
  const lines = [...all].slice(0, MOST_LINES).flatMap(([key, points]) => {
    const point = nearest(points, at.x);
    return point ? [line(name(key), point.value)] : [];
  });
  const heading = headingOf(at.x);
  const more = all.size - MOST_LINES;
  return { heading, lines: more > 0 ? [...lines, { name: `${more} more`, value: '' }] : lines };
}

function timeWords(x: number): string {
  return new Date(x).toISOString().replace('T', ' ').slice(0, 19);
}

function line(name: string, value: number): { name: string; value: string } {
  return { name, value: formatNumber(value) };
}
