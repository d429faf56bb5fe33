import type { Column, Table, DataType } from '@uwdata/flechette';
import {
  tableFromIPC,
  field,
  float32,
  float64,
  int32,
  int64,
  list,
  tableFromArrays,
  tableToIPC,
  utf8
} from '@uwdata/flechette';
import { badFrame, HEADER_BYTES, HEADER_VERSION, MAGIC } from './frame';
import { OWN_STREAMS, type StreamMap } from './streams';
import { own } from './records';
import type { FieldType } from './streams.generated';

export interface IFrameHeader {
  /** Step of the newest row, -1 where no step is meant. */
  step: number;
  /** Sequence number; 0 when absent. */
  seq?: number;
  /** Microseconds since the epoch; now when absent. */
  timeUs?: number;
  bits?: number;
}

const TYPES: Readonly<Record<FieldType, () => DataType>> = {
  int32: () => int32(),
  int64: () => int64(),
  float64: () => float64(),
  utf8: () => utf8(),
  'list<int32>': () => list(field('item', int32())),
  'list<float32>': () => list(field('item', float32())),
  'list<utf8>': () => list(field('item', utf8()))
};

/**
 * Write the frame that carries some rows. Viewers only read frames; producers written in TypeScript, tests
 * and benchmarks write them.
 *
 * @param streams - The streams of its run, where they are more than those of this version.
 * @throws ProtocolError `bad-frame` when the columns are not the stream's.
 */
export function encodeFrame(
  stream: string,
  columns: Readonly<Record<string, ArrayLike<unknown>>>,
  header: IFrameHeader,
  streams: StreamMap = OWN_STREAMS
): Uint8Array {
  const info = streams.get(stream);
  if (info === undefined) {
    throw badFrame(`There is no stream ${stream}.`, {
      expected: [...streams.keys()].join(', '),
      got: stream
    });
  }
  const { fields } = info;
  const expected = fields.map(info => info.name);
  const got = Object.keys(columns);
  const lengths = new Set(Object.values(columns).map(column => column.length));
  if (
    got.length !== expected.length ||
    expected.some(name => own(columns, name) === undefined) ||
    lengths.size !== 1
  ) {
    throw badFrame(`These columns do not fit the stream ${stream}, or their lengths differ.`, {
      expected: expected.join(', '),
      got: got.join(', ')
    });
  }
  const table = tableFromArrays(
    fields.map((info): [string, unknown[]] => [info.name, Array.from(own(columns, info.name) ?? [])]),
    { types: Object.fromEntries(fields.map(info => [info.name, TYPES[info.type]()])) }
  );
  const body = tableToIPC(table, { format: 'stream' });
  if (body === null) {
    throw badFrame(`The rows of the stream ${stream} could not be written.`);
  }
  const frame = new Uint8Array(HEADER_BYTES + body.byteLength);
  const view = new DataView(frame.buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint16(4, HEADER_VERSION, true);
  view.setUint16(6, header.bits ?? 0, true);
  view.setBigUint64(8, BigInt(header.seq ?? 0), true);
  view.setBigInt64(16, BigInt(header.step), true);
  view.setBigInt64(24, BigInt(header.timeUs ?? Date.now() * 1000), true);
  view.setUint32(32, table.numRows, true);
  view.setUint32(36, body.byteLength, true);
  frame.set(new TextEncoder().encode(stream), 40);
  frame.set(body, HEADER_BYTES);
  return frame;
}

type Numbers = Float64Array | Int32Array;

/**
 * Columns of rows that the Jupyter server made itself: typed arrays of their own, without an object a row.
 *
 * Frames are a training's and are checked before they are read; these are the server's, as much to be trusted
 * as the page.
 */
export class ArrowColumns {
  /** @throws ProtocolError `bad-frame` when the bytes are something else. */
  constructor(bytes: Uint8Array) {
    try {
      this.table = tableFromIPC(bytes.byteOffset % 8 === 0 ? bytes : bytes.slice());
    } catch (error) {
      throw badFrame(`The rows that the server sent could not be read: ${String(error)}`);
    }
  }

  readonly table: Table;

  get rows(): number {
    return this.table.numRows;
  }

  floats(name: string): Float64Array {
    return this.copied(name, new Float64Array(this.rows));
  }

  whole(name: string): Int32Array {
    return this.copied(name, new Int32Array(this.rows));
  }

  /** Words of a dictionary: `codes` are indices into `values`. */
  words(name: string): { readonly codes: Int32Array; readonly values: readonly string[] } {
    const column = this.column(name);
    const [first] = column.data;
    const dictionary = (first as { readonly dictionary?: Column<unknown> } | undefined)?.dictionary;
    if (first !== undefined && dictionary === undefined) {
      throw badFrame(`The column ${name} that the server sent is no dictionary.`);
    }
    const values = dictionary === undefined ? [] : Array.from(dictionary.toArray(), String);
    return { codes: this.copied(name, new Int32Array(this.rows)), values };
  }

  cell(name: string, row: number): string | number | null {
    const value: unknown = this.column(name).at(row);
    return typeof value === 'string' || typeof value === 'number' ? value : null;
  }

  private copied<T extends Numbers>(name: string, into: T): T {
    let at = 0;
    for (const { length, values } of this.column(name).data) {
      if (!(values instanceof Float64Array || values instanceof Int32Array)) {
        throw badFrame(`The column ${name} that the server sent is of another type.`);
      }
      into.set(values.subarray(0, length), at);
      at += length;
    }
    return into;
  }

  private column(name: string): Column<unknown> {
    const column: Column<unknown> | undefined = this.table.children[this.table.names.indexOf(name)];
    if (column === undefined) {
      throw badFrame(`The rows that the server sent have no column ${name}.`, {
        expected: name,
        got: this.table.names.join(', ')
      });
    }
    return column;
  }
}
