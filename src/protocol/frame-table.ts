import { tableFromIPC, type Table } from '@uwdata/flechette';
import { checkArrowStream } from './arrow-guard';
import { badFrame, type IFrame } from './frame';
import { ProtocolError } from './protocol-error';
import { readableStreams, type StreamMap } from './streams';

const OWN = readableStreams(undefined);

/** The rows of a stream, as columns. */
export type StreamTable = Table;

/**
 * Decode a frame's rows. Number columns and the values of tensors are views of the frame's memory.
 *
 * @param frame - The frame.
 * @param streams - The streams of its run, where they are more than those of this version.
 * @returns A table with exactly the stream's columns; whole numbers are JavaScript numbers.
 * @throws ProtocolError `bad-frame` when the body is not an Arrow stream of that schema with the number of rows announced.
 */
export function frameTable(frame: IFrame, streams?: StreamMap): StreamTable {
  return streamTable(frame.stream, frame.body, streams, frame.rows);
}

/**
 * Decode the rows of a stream from a bare Arrow IPC stream, such as the Jupyter server answers.
 *
 * @param stream - Stream name.
 * @param bytes - The Arrow IPC stream.
 * @param streams - The streams of its run, where they are more than those of this version.
 * @param rows - Number of rows that there must be, when known.
 * @throws ProtocolError `bad-frame`.
 */
export function streamTable(
  stream: string,
  bytes: Uint8Array,
  streams: StreamMap = OWN,
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
