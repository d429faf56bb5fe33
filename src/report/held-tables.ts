import { encodeFrame } from '../protocol/encode-frame';
import { HEADER_BYTES } from '../protocol/frame';
import { own } from '../protocol/records';
import type { StreamMap } from '../protocol/streams';
import type { IStreamInfo } from '../protocol/streams.generated';
import type { IRowsQuery, IStreamRows, RowColumn } from '../store/row-store';
import { cleanPaths } from '../views/shared/clean-paths';

/** What views asked of streams without a method of their own, and were answered: a report's file holds each row once, whoever asked for it. */
export class HeldTables {
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
      const whole = answers.get('{}');
      if (info !== undefined) {
        const columns = joined(info, whole ? [whole] : [...answers.values()]);
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
