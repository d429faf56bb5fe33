import type { MomentFilter } from '../../protocol/views.generated';
import type { MomentColumn, MomentKey } from '../../store/moment-source';
import { oneTensor } from './one-tensor';
import type { MomentOptions } from './words';

/** Options that say what a map is of. */
type MapOptions = Pick<MomentOptions, 'along' | 'by' | 'cells' | 'columns' | 'kind' | 'where'>;

/** What lines of cells go over. */
export type Along = Exclude<MomentOptions['along'], 'auto'>;

/** A cell: the key of its row, and the number of its column. */
export interface IMapCell {
  readonly key: MomentKey;
  readonly x: number;
}

/** Most characters of a name's filter, as the options' schema says. */
const MOST_CHARACTERS = 500;

/** Whether a kind is a map. */
export const isMap = (kind: MomentOptions['kind']): boolean => /(?:^|_)map$/.test(kind);

/** Columns that make a row of a map. */
export function mapRows({ kind, by, columns }: MapOptions): readonly MomentColumn[] {
  const rows: readonly MomentColumn[] =
    kind === 'layer_map' ? ['layer'] : kind === 'item_map' ? ['item_type'] : (by ?? []);
  return rows.filter(row => row !== columns);
}

/** Columns that make a group of a map: those of its rows, and the one that lies across where that is not the step. */
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
  const held = columns !== 'step' ? null : rows.includes('rank') ? 'name' : 'rank';
  return held !== null && (where?.[held] ?? 'all') !== 'all' ? held : 'step';
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

/** A filter that lets as little as it can say through beside one group. */
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
