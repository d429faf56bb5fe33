import { encodeFrame } from '../../protocol/arrow-columns';
import { HEADER_BYTES } from '../../protocol/frame';
import { streamTable } from '../../protocol/frame-table';
import type { GenerateRequest } from '../../protocol/messages.generated';
import { STREAMS } from '../../protocol/streams';
import { RowStore, type IRowsQuery, type IStreamRows } from '../row-store';
import { RunLink } from '../run-link';
import { MemoryRun } from './memory-run';

type StreamName = keyof typeof STREAMS;
type Cells = Readonly<Record<string, unknown>>;

/** Rows of a stream as they come from a hub. Columns that a row leaves out are 0, an empty text or an empty list. */
export function streamRows(stream: StreamName, rows: readonly Cells[], query: IRowsQuery = {}): IStreamRows {
  const store = new RowStore(STREAMS[stream]);
  store.append(streamTable(stream, streamBytes(stream, rows)), false);
  return store.rows(query);
}

/** Such rows as an Arrow IPC stream. */
export function streamBytes(stream: StreamName, rows: readonly Cells[]): Uint8Array {
  const columns = STREAMS[stream].fields.map(({ name, type }) => {
    const empty = type.startsWith('list') ? [] : type === 'utf8' ? '' : 0;
    return [name, rows.map(row => row[name] ?? empty)] as const;
  });
  return encodeFrame(stream, Object.fromEntries(columns), { step: -1, timeUs: 0 }).slice(HEADER_BYTES);
}

/** A run whose model wrote text: rows of any stream by hand. */
export class WrittenRun extends MemoryRun {
  readonly written = new Map<StreamName, Cells[]>();

  /** Let rows arrive. */
  write(stream: StreamName, ...rows: Cells[]): void {
    this.written.set(stream, [...(this.written.get(stream) ?? []), ...rows]);
    this.read.clear();
    this.changed.emit({ kind: 'rows', stream, firstStep: 1, lastStep: 1 });
  }

  /** Let a generation be asked for, and end. */
  generated(generation: number, request: GenerateRequest, row: Cells = {}): void {
    const sequences = request.prompts.length * (request.samples ?? 1);
    const text = JSON.stringify(request);
    this.write('generations', {
      generation,
      state: 'finished',
      sequences,
      time: generation,
      request: text,
      ...row
    });
  }

  /** Let a text be written, a token a position. */
  text(generation: number, pieces: readonly string[], sequence = 0): void {
    this.write(
      'tokens',
      ...pieces.map((piece, position) => ({
        generation,
        sequence,
        position,
        kind: 'prompt',
        text: piece,
        piece,
        id: position
      }))
    );
  }

  override table(stream = '', query: IRowsQuery = {}): Promise<IStreamRows> {
    if (!this.written.has(stream as StreamName)) {
      return super.table(stream);
    }
    const key = JSON.stringify([stream, query]);
    const name = stream as StreamName;
    const rows = this.read.get(key) ?? streamRows(name, this.written.get(name) ?? [], query);
    this.read.set(key, rows);
    return Promise.resolve(rows);
  }

  /** Answers that no new rows made old. */
  private readonly read = new Map<string, IStreamRows>();
}

/** A run whose views tell one another what is pointed at and pinned. */
export class LinkedRun extends WrittenRun {
  readonly link = new RunLink();
}
