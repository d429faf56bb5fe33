import { OWN_STREAMS, type StreamMap } from './streams';
import {
  field,
  float32,
  float64,
  int32,
  int64,
  list,
  tableFromArrays,
  tableToIPC,
  utf8,
  type DataType
} from '@uwdata/flechette';
import { own } from './records';
import { HEADER_BYTES, HEADER_VERSION, MAGIC, badFrame } from './frame';
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
