import type { IGenerationRead } from './generation-rows';
import type { ITensorRow } from '../../../store/source';

/** A tensor of a whole text. */
export interface IJoinedRow {
  /** `[1, positions, *]`, NaN where a position is missing. */
  readonly row: ITensorRow;
  /** By position: 1 where there is no row. */
  readonly missing: Uint8Array;
}

/**
 * Put the rows of one layer together, position after position.
 *
 * @param sequence - Row of the batch.
 * @param axis - Place of the position axis among the axes of one sample, 0 for `[positions, features]`.
 * @returns Null where the layer has no row of the sequence with that axis.
 */
export function joinPositions(
  read: IGenerationRead,
  layer: number,
  sequence: number,
  axis = 0
): IJoinedRow | null {
  const found = read.passes.flatMap(({ rows, ...pass }) => {
    const row = rows.get(layer);
    return row && isWhole(row, axis) && sequence < (row.shape[0] ?? 0) ? [{ ...pass, row }] : [];
  });
  const newest = found[found.length - 1]?.row;
  if (newest === undefined) {
    return null;
  }
  const { count } = read;
  const [outer, inner] = [product(newest.shape.slice(1, axis + 1)), product(newest.shape.slice(axis + 2))];
  const values = new Float32Array(outer * count * inner).fill(NaN);
  const missing = new Uint8Array(count).fill(1);
  // What was traced otherwise before does not fit beside the newest.
  const fitting = found.filter(({ row }) => row.compressor === newest.compressor && fits(row, newest, axis));
  for (const { row, positions, shift } of fitting) {
    const length = row.shape[axis + 1] ?? 0;
    for (let position = positions[0]; position <= positions[1]; position += 1) {
      const offset = position + shift;
      if (offset < 0 || offset >= length) {
        continue;
      }
      for (let slice = 0; slice < outer; slice += 1) {
        const from = ((sequence * outer + slice) * length + offset) * inner;
        values.set(row.values.subarray(from, from + inner), (slice * count + position) * inner);
      }
      missing[position] = 0;
    }
  }
  const sum = (part: (row: ITensorRow) => number): number =>
    fitting.reduce((total, { row }) => total + part(row), 0);
  const lengthened = (shape: readonly number[]): number[] => [
    1,
    ...shape.slice(1, axis + 1),
    count,
    ...shape.slice(axis + 2)
  ];
  return {
    missing,
    row: {
      ...newest,
      microBatch: 0,
      labels: [],
      values,
      shape: lengthened(newest.shape),
      sourceShape: lengthened(newest.sourceShape),
      nanCount: sum(row => row.nanCount),
      infCount: sum(row => row.infCount),
      compressionError: NaN,
      whole: null
    }
  };
}

const product = (sizes: readonly number[]): number => sizes.reduce((all, size) => all * size, 1);

/** Whether the position axis is there, and as long as the pass was. */
function isWhole(row: ITensorRow, axis: number): boolean {
  return row.shape.length > axis + 1 && row.shape[axis + 1] === row.sourceShape[axis + 1];
}

function fits(row: ITensorRow, other: ITensorRow, axis: number): boolean {
  return (
    row.shape.length === other.shape.length &&
    row.shape.every((size, at) => at === 0 || at === axis + 1 || size === other.shape[at])
  );
}
