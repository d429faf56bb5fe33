import { picked } from '../../aggregate';
import { byName } from '../../protocol/records';
import { GROUP_FLOATS, type IMomentGroups, type MomentKey } from '../../store/row-moments';
import { mapColumns, type ILine } from '../kits/lines/line';
import { groupId, LINE_COLUMNS } from './line';

/** Rows of groups whose keys are the same but for one column. */
interface IPart {
  /** The rest of the key. */
  readonly key: MomentKey;
  /** Indices of the rows, ascending by where they lie. */
  readonly rows: readonly number[];
}

/** Where a value of a key lies; null where it lies nowhere. */
export type PlaceOf = (value: MomentKey[number]) => number | null;

const numbers: PlaceOf = value => (typeof value === 'number' ? value : null);

/**
 * Take groups apart by all columns of their keys but one, which says where a row lies. What lies nowhere is
 * left out.
 */
function partsOf(
  groups: IMomentGroups,
  column: number,
  placeOf: PlaceOf
): { readonly parts: readonly IPart[]; readonly xs: Float64Array } {
  const found = new Map<string, { key: MomentKey; rows: number[] }>();
  const xs = new Float64Array(groups.group.length).fill(NaN);
  groups.group.forEach((group, row) => {
    const fullKey = groups.keys[group] ?? [];
    const x = placeOf(fullKey[column] ?? null);
    if (x !== null) {
      const key = fullKey.filter((_, at) => at !== column);
      const id = JSON.stringify(key);
      const part = found.get(id) ?? { key, rows: [] };
      part.rows.push(row);
      found.set(id, part);
      xs[row] = x;
    }
  });
  const parts = [...found.values()];
  parts.forEach(({ rows }) => rows.sort((a, b) => (xs[a] ?? 0) - (xs[b] ?? 0)));
  return { parts, xs };
}

/**
 * Turn groups at one step into a line for each of the rest of their keys, over the first column: over layers.
 * What has no layer is left out. `placeOf`: where a value of the first column lies; a number there when
 * absent.
 */
export function linesAcross(
  groups: IMomentGroups,
  run: number,
  name: (key: MomentKey) => string,
  label: (key: MomentKey) => string,
  entry?: string,
  placeOf = numbers
): ILine[] {
  const { parts, xs } = partsOf(groups, 0, placeOf);
  return parts.map(({ key, rows }) => {
    const column = (values: Float64Array): Float64Array => picked(values, rows);
    return {
      key: groupId(key),
      ...(entry === undefined ? {} : { entry }),
      name: name(key),
      label: label(key),
      run,
      layer: null,
      starts: [],
      isThin: false,
      digits: 9,
      ...byName(LINE_COLUMNS, of => column(of === 'x' ? xs : groups[of]))
    };
  });
}

/** Groups by row of a map, and where each of their rows lies. */
export interface IMapGrid {
  readonly groups: IMomentGroups;
  readonly xs: Float64Array;
  /** Groups without a position. */
  readonly left: number;
}

/** Turn groups at one step into rows of a map, over the last column of their keys. */
export function gridAcross(groups: IMomentGroups, most: number): IMapGrid {
  const { parts, xs } = partsOf(groups, (groups.keys[0]?.length ?? 1) - 1, numbers);
  const sizeOf = ({ rows }: IPart): number =>
    rows.reduce((size, row) => {
      const value = groups.nonFinite[row] === 0 ? Math.abs(groups.value[row] ?? NaN) : Infinity;
      return Number.isNaN(value) ? size : Math.max(size, value);
    }, -1);
  const least = parts.map(sizeOf).sort((a, b) => b - a)[most - 1] ?? -Infinity;
  const kept = parts.length <= most ? parts : parts.filter(part => sizeOf(part) >= least).slice(0, most);
  const rows = kept.flatMap(part => part.rows);
  return {
    groups: {
      ...byName(GROUP_FLOATS, name => Float64Array.from(rows, row => groups[name][row] ?? NaN)),
      scaled: Uint8Array.from(rows, row => groups.scaled[row] ?? 0),
      keys: kept.map(part => part.key),
      group: Uint32Array.from(kept.flatMap((part, at) => part.rows.map(() => at))),
      groupsTotal: parts.length,
      stepsTotal: 1
    },
    xs: Float64Array.from(rows, row => xs[row] ?? NaN),
    left: xs.filter(Number.isNaN).length
  };
}

/** A line at some of its layers only; none where it has none of them. */
export function onlyAt(line: ILine, layers: ArrayLike<number>): ILine[] {
  const wanted = new Set(Array.from(layers));
  const cut = (column: Float64Array): Float64Array => column.filter((_, at) => wanted.has(line.x[at] ?? NaN));
  const kept = mapColumns(line, cut);
  return kept.x.length === 0 ? [] : [kept];
}
