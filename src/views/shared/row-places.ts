/** Pixels that the label of a row takes. */
const LABEL = 12;

/** Pixels of a row, of all of them, and of a label. */
export interface IRowHeights {
  readonly each: number;
  readonly least: number;
  readonly most: number;
  readonly label?: number;
}

/** How high rows are together, and which of them are high enough for a label. */
export function rowPlaces(
  count: number,
  { each, least, most, label = LABEL }: IRowHeights
): { readonly height: number; readonly labelled: readonly number[] } {
  const height = Math.min(most, Math.max(least, count * each));
  const every = Math.max(1, Math.ceil((label * count) / height));
  return {
    height,
    labelled: Array.from({ length: count }, (_, row) => row).filter(row => row % every === 0)
  };
}

/** The same as a chart reads it. */
export function labelledRows(
  count: number,
  heights: IRowHeights,
  textOf: (row: number) => string
): {
  readonly height: number;
  readonly params: { readonly rowAt: readonly number[]; readonly rowText: readonly string[] };
} {
  const { height, labelled } = rowPlaces(count, heights);
  return { height, params: { rowAt: labelled, rowText: labelled.map(textOf) } };
}
