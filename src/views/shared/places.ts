import { own, firstPlace } from '../../protocol/records';

/** Place of the last number that is not above `x` in ascending ones; -1 where all are. */
export function placeBefore(sorted: ArrayLike<number>, x: number): number {
  return firstPlace(sorted.length, at => !((sorted[at] as number) <= x)) - 1;
}

/** Place of the number nearest to `x` in ascending ones; -1 where there is none. */
export function placeNear(sorted: ArrayLike<number>, x: number): number {
  const before = placeBefore(sorted, x);
  const [left, right] = [sorted[before], sorted[before + 1]];
  return right !== undefined && (left === undefined || right - x < x - left) ? before + 1 : before;
}

/** A whole number between 0 and `count - 1`. */
export const hold = (value: number, count: number): number => Math.min(count - 1, Math.max(0, value));

/** What a key moves a cursor by, across and down; undefined where it means nothing. `copy` stays where it is. */
export function moveOf(key: string): readonly [number, number] | undefined {
  return own(MOVES, key);
}

/** The edges of a cell one wide. */
export const around = (center: number): readonly [number, number] => [center - 0.5, center + 0.5];

/** A cell of a grid. */
export interface IGridCell {
  readonly column: number;
  readonly row: number;
}

/**
 * Where a key leads among the cells of a grid; null where it means nothing, or there are none. The first key shows where the cursor is.
 *
 * @param first - Column at which it begins, in the first row; of those beyond the last the last one.
 */
export function moveAmongCells(
  key: string,
  before: IGridCell | null,
  { columns, rows }: { readonly columns: number; readonly rows: number },
  first = 0
): IGridCell | null {
  const by = moveOf(key);
  if (by === undefined || columns === 0 || rows === 0) {
    return null;
  }
  const [across, down] = before ? by : [0, 0];
  const { column, row } = before ?? { column: first, row: 0 };
  return { column: hold(column + across, columns), row: hold(row + down, rows) };
}

/** What a key moves a cursor by among pictures: across and down within one, and from one to another; undefined where it means nothing. */
export function moveAmongPictures(key: string): readonly [number, number, number] | undefined {
  const turn = Number(key === 'PageDown') - Number(key === 'PageUp');
  const by = moveOf(key);
  return turn === 0 ? by && [...by, 0] : [0, 0, turn];
}

const MOVES: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [-Infinity, 0],
  End: [Infinity, 0],
  copy: [0, 0]
};
