import { byName } from '../protocol/by-name';
import { encodeFrame } from '../protocol/encode-frame';
import { HEADER_BYTES } from '../protocol/frame';
import { streamTable } from '../protocol/frame-table';
import { isKnown, momentsOf, remember, SUMS } from '../store/row-moments';
import type { ITensorRow } from '../store/source';
import { tensorRows } from '../store/tensor-rows';
import { coarse, decimal, shorten } from './packing';

/** Rows as bytes. */
export interface IRowBytes {
  readonly tensors: Uint8Array;
  readonly sums: Uint8Array;
  readonly shapes: readonly (readonly number[])[];
}

/** Columns before the sums: whether a row's values were given up, and the place of its shape. */
const BEFORE = 2;
/** Columns of what is known of the whole tensor. */
const WHOLE = ['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max'] as const;
/** Shape of a row without values. */
const NO_VALUES = [0];

/**
 * Write rows as an Arrow IPC stream with values of three digits, and beside it what a frame has no place for: of rows whose values were
 * given up the shape, and of rows whose sums are known these, taken of the values as they were.
 */
export function writeRows(rows: readonly ITensorRow[]): IRowBytes {
  const shapes: (readonly number[])[] = [];
  const placeOf = new Map<string, number>();
  const sums = new Float64Array(rows.length * (BEFORE + SUMS.length)).fill(NaN);
  rows.forEach((row, at) => {
    const text = row.shape.join();
    if (!placeOf.has(text)) {
      placeOf.set(text, shapes.push(row.shape) - 1);
    }
    sums[at] = row.reduced ? 1 : 0;
    sums[rows.length + at] = placeOf.get(text) ?? 0;
    if (isKnown(row.values)) {
      const known = momentsOf(row.values);
      SUMS.forEach((name, column) => (sums[(BEFORE + column) * rows.length + at] = known[name]));
    }
  });
  // Counts are whole numbers and stay so.
  shorten(sums.subarray(4 * rows.length));
  const held = rows.map(row => ({
    ...row,
    shape: row.reduced ? NO_VALUES : row.shape,
    values: coarse(row.values)
  }));
  return { tensors: bytesOf(held), sums: new Uint8Array(sums.buffer), shapes };
}

/** Write rows as an Arrow IPC stream. */
export function bytesOf(rows: readonly ITensorRow[]): Uint8Array {
  const column = <T>(read: (row: ITensorRow) => T): T[] => rows.map(read);
  const frame = encodeFrame(
    'tensors',
    {
      step: column(row => row.step),
      micro_batch: column(row => row.microBatch),
      phase: column(row => row.phase),
      pass: column(row => row.pass),
      rank: column(row => row.rank),
      layer: column(row => row.layer),
      flag: column(row => row.flag),
      part: column(row => row.part),
      compressor: column(row => row.compressor),
      source_shape: column(row => row.sourceShape),
      shape: column(row => row.shape),
      values: column(row => row.values),
      labels: column(row => row.labels),
      nan_count: column(row => row.nanCount),
      inf_count: column(row => row.infCount),
      compression_error: column(row => row.compressionError),
      ...byName(WHOLE, name => column(row => row.whole?.[name] ?? NaN))
    },
    { step: -1, timeUs: 0 }
  );
  return frame.slice(HEADER_BYTES);
}

/** Read what {@link writeRows} wrote. */
export function readRows({ tensors, sums: bytes, shapes }: IRowBytes): ITensorRow[] {
  const sums = new Float64Array(bytes.slice().buffer);
  const rows = tensorRows(streamTable('tensors', tensors));
  return rows.map((row, at) => {
    const given = (column: number): number => sums[column * rows.length + at] ?? NaN;
    const values = decimal(row.values);
    if (Number.isFinite(given(BEFORE))) {
      remember(
        values,
        byName(SUMS, name => given(BEFORE + SUMS.indexOf(name)))
      );
    }
    return given(0) === 1
      ? { ...row, values, shape: shapes[given(1)] ?? row.shape, reduced: true as const }
      : { ...row, values };
  });
}
