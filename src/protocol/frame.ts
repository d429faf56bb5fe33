import { ProtocolError, type IProtocolErrorDetails } from './protocol-error';

/**
 * Give the memory of a buffer back at once, where buffers can do that: the garbage collector comes much
 * later, and until then the page takes that much more.
 */
export function giveBack(buffer: ArrayBufferLike & { transfer?: (bytes: number) => unknown }): void {
  buffer.transfer?.(0);
}

export const HEADER_BYTES = 64;

/** Header bit: sent from the hub's buffer, not live. */
export const BIT_CAUGHT_UP = 1;

/** Header bit: several original frames in one. */
export const BIT_MERGED = 2;

/** The first four bytes of every frame, `MLNS`, read as a little-endian integer. */
export const MAGIC = 0x534e4c4d;

export const HEADER_VERSION = 1;

/** One decoded header with its undecoded body. */
export interface IFrame {
  /** Stream name; it may be one that this version does not know. */
  readonly stream: string;
  /** Sequence number, 0 when the sender gave none. */
  readonly seq: number;
  /** Step of the newest row, -1 where no step is meant. */
  readonly step: number;
  /** Producer's wall clock at the flush, microseconds since the epoch. */
  readonly timeUs: number;
  /** Rows in the body, as the header says. */
  readonly rows: number;
  /** `BIT_CAUGHT_UP` and `BIT_MERGED`. */
  readonly bits: number;
  /** The Arrow IPC stream: a view, at a multiple of 8 bytes in its buffer. */
  readonly body: Uint8Array;
}

/**
 * Read a frame's header. The body is viewed, not copied (unless it lies at an odd place in its buffer), and
 * decoded by `frameTable`.
 *
 * @throws ProtocolError `bad-frame` when the header is not one, `version-mismatch` when its version is
 * another.
 */
export function decodeFrame(data: ArrayBuffer | ArrayBufferView): IFrame {
  const bytes = ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
  if (bytes.byteLength < HEADER_BYTES) {
    throw badFrame('A data frame is shorter than its header.', {
      expected: `${HEADER_BYTES} bytes`,
      got: `${bytes.byteLength} bytes`
    });
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES);
  const magic = view.getUint32(0, true);
  if (magic !== MAGIC) {
    throw badFrame('A binary message is not a Megalens data frame.', {
      expected: 'MLNS',
      got: `0x${magic.toString(16)}`
    });
  }
  const version = view.getUint16(4, true);
  if (version !== HEADER_VERSION) {
    throw new ProtocolError(
      'version-mismatch',
      `This data frame has header version ${version}; this side reads ${HEADER_VERSION}. ` +
        'Update the older side.',
      { expected: String(HEADER_VERSION), got: String(version) }
    );
  }
  const length = view.getUint32(36, true);
  if (bytes.byteLength !== HEADER_BYTES + length) {
    throw badFrame('A data frame is cut short or has bytes left over.', {
      expected: `${HEADER_BYTES + length} bytes`,
      got: `${bytes.byteLength} bytes`
    });
  }
  const body = bytes.subarray(HEADER_BYTES);
  return {
    stream: streamName(bytes.subarray(40, HEADER_BYTES)),
    seq: safeInteger(view.getBigUint64(8, true), 'sequence number'),
    step: safeInteger(view.getBigInt64(16, true), 'step'),
    timeUs: safeInteger(view.getBigInt64(24, true), 'time'),
    rows: view.getUint32(32, true),
    bits: view.getUint16(6, true),
    body: body.byteOffset % 8 === 0 ? body : body.slice()
  };
}

/** Let go of a frame whose rows were copied: at every step it is as much as the rows themselves. */
export function releaseFrame({ body }: IFrame): void {
  // A small message of a socket outside the browser is a part of a buffer that others use.
  if (body.buffer.byteLength - body.byteLength <= HEADER_BYTES) {
    giveBack(body.buffer);
  }
}

export function badFrame(message: string, details: IProtocolErrorDetails = {}): ProtocolError {
  return new ProtocolError('bad-frame', message, details);
}

function streamName(padded: Uint8Array): string {
  let end = padded.length;
  while (end > 0 && padded[end - 1] === 0) {
    end -= 1;
  }
  const name = padded.subarray(0, end);
  if (end === 0 || name.some(byte => byte < 0x21 || byte >= 0x7f)) {
    throw badFrame('The stream name of a data frame is not ASCII text.', { got: name.join(' ') });
  }
  return String.fromCharCode(...name);
}

function safeInteger(value: bigint, what: string): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) {
    throw badFrame(`The ${what} of a data frame is too large to count with.`, {
      expected: `at most ${Number.MAX_SAFE_INTEGER}`,
      got: String(value)
    });
  }
  return number;
}

/**
 * A FlatBuffers table, read with every access checked against the bytes that are there.
 *
 * Arrow's metadata are FlatBuffers: tables whose fields are found through a small table of offsets. The Arrow
 * reader follows those offsets without looking, so the guard walks them here first.
 */
export class FlatTable {
  /** @param reference - Where the offset of the table stands. */
  constructor(
    private readonly view: DataView,
    reference: number
  ) {
    this.start = this.follow(reference);
    this.vtable = this.start - view.getInt32(inside(view, this.start, 4), true);
    this.size = view.getInt16(inside(view, this.vtable, 4), true);
    if (this.size < 4 || this.size % 2 !== 0) {
      throw badFrame('The Arrow metadata of a data frame are broken: a table has an impossible size.');
    }
    inside(view, this.vtable, this.size);
  }

  /**
   * Where a field's `bytes` bytes stand; null when it is absent. `slot` is its offset in the vtable: 4, 6, 8
   * …
   */
  at(slot: number, bytes: number): number | null {
    const offset = slot < this.size ? this.view.getInt16(this.vtable + slot, true) : 0;
    return offset === 0 ? null : inside(this.view, this.start + offset, bytes);
  }

  uint8(slot: number, fallback: number): number {
    const at = this.at(slot, 1);
    return at === null ? fallback : this.view.getUint8(at);
  }

  int16(slot: number, fallback: number): number {
    const at = this.at(slot, 2);
    return at === null ? fallback : this.view.getInt16(at, true);
  }

  int32(slot: number, fallback: number): number {
    const at = this.at(slot, 4);
    return at === null ? fallback : this.view.getInt32(at, true);
  }

  /** A 64-bit count or length: never negative, never too large to count with. */
  count(slot: number): number {
    const at = this.at(slot, 8);
    return at === null ? 0 : countAt(this.view, at);
  }

  table(slot: number): FlatTable | null {
    const at = this.at(slot, 4);
    return at === null ? null : new FlatTable(this.view, at);
  }

  /** A text of at most `most` bytes: many references to one long text would multiply it. */
  text(slot: number, most = Infinity): string | null {
    const at = this.at(slot, 4);
    if (at === null) {
      return null;
    }
    const start = this.follow(at);
    const length = this.view.getInt32(inside(this.view, start, 4), true);
    inside(this.view, start + 4, length);
    if (length > most) {
      throw badFrame('The Arrow metadata of a data frame are broken: a name is too long.', {
        expected: `at most ${most} bytes`,
        got: `${length} bytes`
      });
    }
    return new TextDecoder().decode(
      new Uint8Array(this.view.buffer, this.view.byteOffset + start + 4, length)
    );
  }

  /** Offsets of a vector's entries, of `stride` bytes each. */
  vector(slot: number, stride: number): number[] {
    const at = this.at(slot, 4);
    if (at === null) {
      return [];
    }
    const base = this.follow(at);
    const length = this.view.getInt32(inside(this.view, base, 4), true);
    inside(this.view, base + 4, length * stride);
    return Array.from({ length }, (_, index) => base + 4 + index * stride);
  }

  /** The tables of a vector; at most `most`, since each may be a reference to the same one. */
  tables(slot: number, most: number): FlatTable[] {
    const offsets = this.vector(slot, 4);
    if (offsets.length > most) {
      throw badFrame('The Arrow metadata of a data frame have too many parts.', {
        expected: `at most ${most}`,
        got: String(offsets.length)
      });
    }
    return offsets.map(at => new FlatTable(this.view, at));
  }

  private follow(reference: number): number {
    return reference + this.view.getInt32(inside(this.view, reference, 4), true);
  }

  private readonly start: number;
  private readonly vtable: number;
  private readonly size: number;
}

export function countAt(view: DataView, at: number): number {
  const value = view.getBigInt64(inside(view, at, 8), true);
  if (value < 0n || value > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw badFrame('The Arrow metadata of a data frame are broken: a length is impossible.', {
      got: String(value)
    });
  }
  return Number(value);
}

function inside(view: DataView, start: number, bytes: number): number {
  if (start < 0 || bytes < 0 || start + bytes > view.byteLength) {
    throw badFrame('The Arrow metadata of a data frame are broken: they point outside of themselves.');
  }
  return start;
}
