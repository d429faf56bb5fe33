/** Pixels that the label of a row takes. */
const LABEL = 12;

/** Pixels of a row, and of all of them. */
export interface IRowHeights {
  readonly each: number;
  readonly least: number;
  readonly most: number;
}

/** How high rows are together, and which of them are high enough for a label. */
export function rowPlaces(
  count: number,
  { each, least, most }: IRowHeights
): { readonly height: number; readonly labelled: readonly number[] } {
  const height = Math.min(most, Math.max(least, count * each));
  const every = Math.max(1, Math.ceil((LABEL * count) / height));
  return {
    height,
    labelled: Array.from({ length: count }, (_, row) => row).filter(row => row % every === 0)
  };
}
