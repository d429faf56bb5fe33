import { OWN_STREAMS, type IStreamField, type StreamMap } from './streams';
import { tableFromIPC, type Table } from '@uwdata/flechette';
import { FlatTable, countAt, badFrame, type IFrame } from './frame';
import { ProtocolError } from './protocol-error';
import type { FieldType } from './streams.generated';

// Far above what these schemas need; bounds the work that broken metadata can ask for.
const MAX_METADATA_BYTES = 1 << 20;
const MOST_COLUMNS = 64;
const MOST_ENTRIES = 1000;
const MAX_NAME_BYTES = 200;
/** Bytes of one cell of text: names are drawn, sorted and kept many times over. */
const MAX_TEXT_BYTES = 1 << 20;

// Message headers and types by their numbers in Arrow's Message.fbs and Schema.fbs.
const SCHEMA = 1;
const RECORD_BATCH = 3;
const TYPE = { int: 2, float: 3, utf8: 5, list: 12 } as const;
const VERSIONS: readonly number[] = [3, 4];

/**
 * Check that bytes are an Arrow IPC stream of exactly these columns, so that the Arrow reader, which trusts
 * what it reads, may read it.
 *
 * Every offset, length, buffer and text is checked: after this no read leaves the body, no allocation exceeds
 * it, no integer is too large for a JavaScript number. Work and memory are linear in the number of bytes.
 *
 * @param bytes - The stream, at a multiple of 8 bytes in its buffer.
 * @returns The number of rows.
 * @throws ProtocolError `bad-frame`.
 */
function checkArrowStream(bytes: Uint8Array, fields: readonly IStreamField[]): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let rows = 0;
  let at = 0;
  for (let messages = 0; ; messages += 1) {
    if (at + 8 > bytes.byteLength || view.getInt32(at, true) !== -1) {
      throw badFrame('The body of a data frame is not a stream of Arrow messages.');
    }
    const length = view.getInt32(at + 4, true);
    if (length === 0) {
      if (messages === 0) {
        throw badFrame('The body of a data frame holds no Arrow schema.');
      }
      if (at + 8 !== bytes.byteLength) {
        throw badFrame('A data frame has bytes left over after its rows.', {
          got: `${bytes.byteLength - at - 8} bytes`
        });
      }
      return rows;
    }
    at += 8;
    if (length < 8 || length > MAX_METADATA_BYTES || length % 8 !== 0 || at + length > bytes.byteLength) {
      throw badFrame('The Arrow metadata of a data frame have an impossible length.', {
        got: String(length)
      });
    }
    const metadata = new DataView(bytes.buffer, bytes.byteOffset + at, length);
    at += length;
    const message = new FlatTable(metadata, 0);
    const kind = message.uint8(6, 0);
    const header = message.table(8);
    const bodyLength = message.count(10);
    if (at + bodyLength > bytes.byteLength || bodyLength % 8 !== 0) {
      throw badFrame('A record batch of a data frame is cut short.', {
        expected: `${bodyLength} bytes`,
        got: `${bytes.byteLength - at} bytes`
      });
    }
    if (header === null || !VERSIONS.includes(message.int16(4, 0))) {
      throw badFrame('A data frame holds an Arrow message of a version that is not read here.');
    }
    if (kind !== (messages === 0 ? SCHEMA : RECORD_BATCH)) {
      throw badFrame('A data frame must hold one Arrow schema and then record batches, nothing else.', {
        got: `message type ${kind}`
      });
    }
    if (kind === SCHEMA) {
      checkSchema(header, fields);
    } else {
      rows += checkBatch(header, metadata, bytes.subarray(at, at + bodyLength), fields);
    }
    at += bodyLength;
  }
}

function checkSchema(schema: FlatTable, fields: readonly IStreamField[]): void {
  // One that many columns refer to is read as often: their number is known before anything of them is.
  const columns = schema.tables(6, MOST_COLUMNS);
  const found = columns.map(column => `${column.text(4, MAX_NAME_BYTES) ?? ''}: ${typeOf(column)}`);
  const expected = fields.map(field => `${field.name}: ${field.type}`);
  if (schema.int16(4, 0) !== 0 || found.join() !== expected.join()) {
    throw badFrame('A data frame has other columns than its stream.', {
      expected: expected.join(', '),
      got: found.join(', ').slice(0, 1000)
    });
  }
  const budget = { left: MAX_METADATA_BYTES };
  checkMetadata(schema, 8, budget);
  for (const column of columns) {
    checkMetadata(column, 16, budget);
    for (const child of column.tables(14, 1)) {
      child.text(4, MAX_NAME_BYTES);
      checkMetadata(child, 16, budget);
    }
  }
}

// The metadata mean nothing here, but the Arrow reader reads them.
function checkMetadata(table: FlatTable, slot: number, budget: { left: number }): void {
  for (const entry of table.tables(slot, MOST_ENTRIES)) {
    budget.left -= (entry.text(4)?.length ?? 0) + (entry.text(6)?.length ?? 0) + 1;
    if (budget.left < 0) {
      throw badFrame('The Arrow metadata of a data frame are too large.');
    }
  }
}

function typeOf(field: FlatTable): string {
  const type = field.table(10);
  if (type === null || field.at(12, 4) !== null) {
    return 'another type';
  }
  const kind = field.uint8(8, 0);
  const children = field.tables(14, MOST_COLUMNS);
  if (kind === TYPE.list) {
    const [child] = children;
    return child === undefined || children.length > 1 || child.uint8(8, 0) === TYPE.list
      ? 'another list'
      : `list<${typeOf(child)}>`;
  }
  if (children.length > 0) {
    return 'another type';
  }
  switch (kind) {
    case TYPE.int:
      return `${type.uint8(6, 0) === 0 ? 'uint' : 'int'}${type.int32(4, 0)}`;
    case TYPE.float:
      return `float${16 << type.int16(4, 0)}`;
    case TYPE.utf8:
      return 'utf8';
    default:
      return `Arrow type ${kind}`;
  }
}

interface IRegion {
  readonly offset: number;
  readonly length: number;
}

function checkBatch(
  batch: FlatTable,
  metadata: DataView,
  body: Uint8Array,
  fields: readonly IStreamField[]
): number {
  if (batch.at(10, 4) !== null || batch.vector(12, 8).length > 0) {
    throw badFrame('The rows of a data frame are compressed or in a layout that is not read here.');
  }
  const rows = batch.count(4);
  const nodes = batch.vector(6, 16).map(at => {
    if (countAt(metadata, at + 8) !== 0) {
      throw badFrame('A data frame has empty cells; every cell of a stream has a value.');
    }
    return countAt(metadata, at);
  });
  const regions = batch.vector(8, 16).map(at => {
    const region: IRegion = { offset: countAt(metadata, at), length: countAt(metadata, at + 8) };
    if (region.offset % 8 !== 0 || region.offset + region.length > body.byteLength) {
      throw badFrame('A column of a data frame lies outside of its record batch.');
    }
    return region;
  });
  const checker = new ColumnChecker(body, nodes, regions);
  for (const field of fields) {
    if (checker.check(field.type) !== rows) {
      throw badFrame(`The column ${field.name} of a data frame has another number of rows than its batch.`);
    }
  }
  checker.finish();
  return rows;
}

/** Takes the nodes and regions of a batch in the order in which the columns own them. */
class ColumnChecker {
  constructor(
    private readonly body: Uint8Array,
    private readonly nodes: readonly number[],
    private readonly regions: readonly IRegion[]
  ) {}

  check(type: FieldType | 'float32'): number {
    const rows = this.nodes[this.node++];
    if (rows === undefined) {
      throw badFrame('A record batch of a data frame lacks columns.');
    }
    this.region();
    switch (type) {
      case 'int32':
      case 'float32':
        this.region(rows * 4);
        break;
      case 'float64':
        this.region(rows * 8);
        break;
      case 'int64':
        this.safeIntegers(rows);
        break;
      case 'utf8':
        this.texts(rows);
        break;
      case 'list<int32>':
        this.list(rows, 'int32');
        break;
      case 'list<float32>':
        this.list(rows, 'float32');
        break;
      case 'list<utf8>':
        this.list(rows, 'utf8');
        break;
    }
    return rows;
  }

  /** Check that nothing is left over. */
  finish(): void {
    if (this.node !== this.nodes.length || this.next !== this.regions.length) {
      throw badFrame('A record batch of a data frame has columns left over.');
    }
  }

  private region(bytes = 0): IRegion {
    const region = this.regions[this.next++];
    if (region === undefined || region.length < bytes) {
      throw badFrame('A column of a data frame is shorter than its rows.', {
        expected: `${bytes} bytes`,
        got: `${region?.length ?? 0} bytes`
      });
    }
    return region;
  }

  private words(region: IRegion, count: number): Int32Array {
    return new Int32Array(this.body.buffer, this.body.byteOffset + region.offset, count);
  }

  private safeIntegers(rows: number): void {
    const words = this.words(this.region(rows * 8), rows * 2);
    for (let index = 1; index < words.length; index += 2) {
      const high = words[index] ?? 0;
      if (high >= 0x200000 || high < -0x200000) {
        throw badFrame('A data frame holds a whole number that is too large to count with.');
      }
    }
  }

  private list(rows: number, type: 'int32' | 'float32' | 'utf8'): void {
    const offsets = this.region(rows === 0 ? 0 : (rows + 1) * 4);
    const entries = this.check(type);
    this.ascending(offsets, rows, entries);
  }

  private texts(rows: number): void {
    const offsets = this.region(rows === 0 ? 0 : (rows + 1) * 4);
    const data = this.region();
    const bytes = this.body.subarray(data.offset, data.offset + data.length);
    const starts = this.ascending(offsets, rows, bytes.byteLength);
    try {
      UTF8.decode(bytes.subarray(starts[0] ?? 0, starts[rows] ?? 0));
    } catch {
      throw badFrame('A text in a data frame is not UTF-8.');
    }
    for (let row = 0; row <= rows && rows > 0; row += 1) {
      const start = starts[row] ?? 0;
      if (row < rows && (starts[row + 1] ?? 0) - start > MAX_TEXT_BYTES) {
        throw badFrame('A text in a data frame is too long.', {
          expected: `at most ${MAX_TEXT_BYTES} bytes`
        });
      }
      // A byte 10xxxxxx continues a character: the text would be cut in it.
      if (start < (starts[rows] ?? 0) && ((bytes[start] ?? 0) & 0xc0) === 0x80) {
        throw badFrame('A text in a data frame is cut inside a character.');
      }
    }
  }

  private ascending(region: IRegion, rows: number, limit: number): Int32Array {
    if (rows === 0) {
      return new Int32Array(1);
    }
    const offsets = this.words(region, rows + 1);
    let previous = 0;
    for (const offset of offsets) {
      if (offset < previous || offset > limit) {
        throw badFrame('A list or text column of a data frame points outside of its values.');
      }
      previous = offset;
    }
    return offsets;
  }

  private node = 0;
  private next = 0;
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });

export type StreamTable = Table;

/**
 * Decode a frame's rows. Number columns and the values of tensors are views of the frame's memory.
 *
 * @param streams - The streams of its run, where they are more than those of this version.
 * @returns A table with exactly the stream's columns; whole numbers are JavaScript numbers.
 * @throws ProtocolError `bad-frame` when the body is not an Arrow stream of that schema with the number of
 * rows announced.
 */
export function frameTable(frame: IFrame, streams?: StreamMap): StreamTable {
  return streamTable(frame.stream, frame.body, streams, frame.rows);
}

/**
 * Decode the rows of a stream from a bare Arrow IPC stream, such as the Jupyter server answers.
 *
 * @param bytes - The Arrow IPC stream.
 * @param streams - The streams of its run, where they are more than those of this version.
 * @throws ProtocolError `bad-frame`.
 */
export function streamTable(
  stream: string,
  bytes: Uint8Array,
  streams: StreamMap = OWN_STREAMS,
  rows?: number
): StreamTable {
  const info = streams.get(stream);
  if (info === undefined) {
    const known = [...streams.keys()].join(', ');
    throw badFrame(`There is no stream ${stream}. The streams are ${known}.`, {
      expected: known,
      got: stream
    });
  }
  const aligned = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  const found = checkArrowStream(aligned, info.fields);
  if (rows !== undefined && found !== rows) {
    throw badFrame(`A ${stream} frame holds another number of rows than its header says.`, {
      expected: String(rows),
      got: String(found)
    });
  }
  try {
    return tableFromIPC(aligned);
  } catch (error) {
    if (error instanceof ProtocolError) {
      throw error;
    }
    throw badFrame(`The rows of a ${stream} frame could not be read: ${String(error)}`);
  }
}
