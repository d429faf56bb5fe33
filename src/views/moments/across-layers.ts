import { byName } from '../../protocol/by-name';
import type { IMomentGroups, MomentKey } from '../../store/moment-source';
import { mapColumns, type ILine } from '../shared/lines/line';
import { groupId, LINE_COLUMNS } from './line';

/** Turn groups by layer and more, at one step, into a line over the layers for each of the rest. What has no layer is left out. */
export function acrossLayers(
  groups: IMomentGroups,
  run: number,
  name: (key: MomentKey) => string,
  label: (key: MomentKey) => string,
  entry?: string
): ILine[] {
  const rest = new Map<string, { key: MomentKey; rows: number[] }>();
  groups.group.forEach((group, row) => {
    const [layer, ...key] = groups.keys[group] ?? [];
    if (typeof layer === 'number') {
      const id = JSON.stringify(key);
      const found = rest.get(id) ?? { key, rows: [] };
      found.rows.push(row);
      rest.set(id, found);
    }
  });
  const layerOf = (row: number): number => Number(groups.keys[groups.group[row] ?? 0]?.[0] ?? NaN);
  return [...rest.values()].map(({ key, rows }) => {
    rows.sort((a, b) => layerOf(a) - layerOf(b));
    const column = (values: Float64Array): Float64Array => Float64Array.from(rows, row => values[row] ?? NaN);
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
      ...byName(LINE_COLUMNS, of => (of === 'x' ? Float64Array.from(rows, layerOf) : column(groups[of])))
    };
  });
}

/** A line at some of its layers only; none where it has none of them. */
export function onlyAt(line: ILine, layers: ArrayLike<number>): ILine[] {
  const wanted = new Set(Array.from(layers));
  const cut = (column: Float64Array): Float64Array => column.filter((_, at) => wanted.has(line.x[at] ?? NaN));
  const kept = mapColumns(line, cut);
  return kept.x.length === 0 ? [] : [kept];
}
