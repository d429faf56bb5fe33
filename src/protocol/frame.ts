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
