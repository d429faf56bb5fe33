import { encodeFrame } from '../protocol/arrow-columns';
import { HEADER_BYTES } from '../protocol/frame';
import { own } from '../protocol/records';
import type { StreamMap } from '../protocol/streams';
import type { IStreamInfo } from '../protocol/streams';
import type { IRowsQuery, IStreamRows, RowColumn } from '../store/row-store';
import { cleanPaths } from '../views/shared/clean-paths';

/** Bytes of the numbers that rows are made of: those of a float64. */
const WIDTH = 8;
/**
 * Bits of a float32's fraction that are given up, and half of what they stand for: 11 significant bits stay,
 * as in a half float.
 */
const LOST = 13;
const MASK = 0xffffffff << LOST;
/** Digits that 11 bits keep. */
const DIGITS = 3;
/**
 * Bits of the lower half of a float64 that stay: with those of the upper half 32 of the fraction, nine
 * digits.
 */
const UPPER = 0xfff00000;
/** Characters that are made at once: each is an argument of a call. */
const PIECE = 8192;

/**
 * Write bytes as text for a page: first every first byte of 8, then every second one and so on, deflated,
 * base64. Numbers differ most in their last bytes, so that what is alike lies together.
 */
export function pack(bytes: Uint8Array, deflate: (bytes: Uint8Array) => Uint8Array): string {
  const planes = new Uint8Array(bytes.length);
  for (let plane = 0, to = 0; plane < WIDTH; plane += 1) {
    for (let from = plane; from < bytes.length; from += WIDTH) {
      planes[to++] = bytes[from] ?? 0;
    }
  }
  const packed = deflate(planes);
  let letters = '';
  for (let from = 0; from < packed.length; from += PIECE) {
    letters += String.fromCharCode(...packed.subarray(from, from + PIECE));
  }
  return btoa(letters);
}

export async function unpack(text: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0, from = 0; plane < WIDTH; plane += 1) {
    for (let to = plane; to < bytes.length; to += WIDTH) {
      bytes[to] = planes[from++] ?? 0;
    }
  }
  return bytes;
}

/**
 * Return values with as many bits as a half float has, over the whole range of float32. What is not finite
 * stays as it is.
 */
export function coarse(values: Float32Array): Float32Array {
  const result = values.slice();
  const bits = new Uint32Array(result.buffer);
  for (let at = 0; at < bits.length; at += 1) {
    const before = bits[at] ?? 0;
    if ((before & 0x7f800000) !== 0x7f800000) {
      const rounded = (before + (1 << (LOST - 1))) & MASK;
      // Next to the greatest number it is cut off instead: there is nothing to round up to.
      bits[at] = (rounded & 0x7f800000) === 0x7f800000 ? before & MASK : rounded;
    }
  }
  return result;
}

/** Return what {@link coarse} left as the decimal numbers that it stands for: three digits, no more. */
export function decimal(values: Float32Array): Float32Array {
  return values.map(value => (Number.isFinite(value) ? Number(value.toPrecision(DIGITS)) : value));
}

/** Cut float64 numbers off in place, so that nine digits stay. */
export function shorten(values: Float64Array): void {
  const halves = new Uint32Array(values.buffer, values.byteOffset, values.length * 2);
  for (let at = 0; at < halves.length; at += 2) {
    // Little endian, as every machine that runs this: the lower half comes first.
    halves[at] = (halves[at] ?? 0) & UPPER;
  }
}

/**
 * What views asked of streams without a method of their own, and were answered: a report's file has each row
 * once, whoever asked.
 */
export class StoredTables {
  /** Remember an answer. One to a whole stream stands for all others. */
  add(stream: string, query: IRowsQuery, rows: IStreamRows): void {
    const asked = JSON.stringify(query);
    this._answers.set(stream, (this._answers.get(stream) ?? new Map()).set(asked, rows));
  }

  /** Frames without their headers by the name of the stream, without paths of the machine. */
  frames(streams: StreamMap): Map<string, Uint8Array> {
    const frames = new Map<string, Uint8Array>();
    for (const [stream, answers] of this._answers) {
      const info = streams.get(stream);
      const everything = answers.get('{}');
      if (info !== undefined) {
        const columns = joined(info, everything ? [everything] : [...answers.values()]);
        const frame = encodeFrame(stream, columns, { step: -1, timeUs: 0 }, streams);
        frames.set(stream, frame.slice(HEADER_BYTES));
      }
    }
    return frames;
  }

  private readonly _answers = new Map<string, Map<string, IStreamRows>>();
}

/** The rows of several answers as columns, each row once. */
function joined(
  { fields, policy }: IStreamInfo,
  answers: readonly IStreamRows[]
): Record<string, readonly unknown[]> {
  const names = policy.identity === undefined ? [] : [...policy.identity, policy.newer ?? 'step'];
  const seen = new Set<string>();
  const taken = answers.map(({ columns, length }) =>
    Array.from({ length }, (_, row) => row).filter(row => {
      const key = JSON.stringify(names.map(name => own(columns, name)?.[row]));
      const isNew = answers.length === 1 || names.length === 0 || !seen.has(key);
      seen.add(key);
      return isNew;
    })
  );
  return Object.fromEntries(
    fields.map(({ name }) => [
      name,
      answers.flatMap(({ columns }, at) => taken[at]?.map(row => clean(own(columns, name), row)) ?? [])
    ])
  );
}

const cleanText = (value: unknown): unknown => (typeof value === 'string' ? cleanPaths(value) : value);

function clean(column: RowColumn | undefined, row: number): unknown {
  const cell = column?.[row];
  return Array.isArray(cell) ? cell.map(cleanText) : cleanText(cell);
}
