import { readableStreams } from '../protocol/streams';
import type { IStreamRows } from './row-store';
import type { IRunEvent } from './run-events';
import type { IRunSource } from './source';

/** What an instrument marks over the steps of a run: the rows of its stream, read as events. */
export interface IEventSource {
  readonly stream: string;
  /** Loads what reads them. */
  load(): Promise<(rows: IStreamRows) => readonly IRunEvent[]>;
}

const sources = new Map<string, IEventSource>();

/** Have the pictures of every run marked with the rows of a stream. */
export function addEventSource(source: IEventSource): void {
  sources.set(source.stream, source);
}

/** Every one of them. */
export const eventSources = (): readonly IEventSource[] => [...sources.values()];

/** The events that instruments see in the rows of a run, read once, and again when there are more. */
export class StreamEvents {
  /** There are more rows of a stream, or all are others. */
  renew(stream?: string): void {
    if (stream === undefined) {
      this._read.clear();
    } else {
      this._read.delete(stream);
    }
  }

  /** Events by their first steps: those that are known, and those of the streams. */
  async join(
    events: readonly IRunEvent[],
    source: Pick<IRunSource, 'hello' | 'table'>
  ): Promise<readonly IRunEvent[]> {
    const there = readableStreams(source.hello?.streams);
    const wanted = eventSources().filter(({ stream }) => there.has(stream));
    const more = (await Promise.all(wanted.map(each => this._of(each, source)))).flat();
    return more.length === 0 ? events : [...events, ...more].sort((a, b) => a.first - b.first);
  }

  private _of(
    { stream, load }: IEventSource,
    source: Pick<IRunSource, 'table'>
  ): Promise<readonly IRunEvent[]> {
    const known = this._read.get(stream);
    if (known !== undefined) {
      return known;
    }
    const read = Promise.all([load(), source.table(stream, {})]).then(([eventsOf, rows]) => eventsOf(rows));
    this._read.set(stream, read);
    read.catch(() => {
      if (this._read.get(stream) === read) {
        this._read.delete(stream);
      }
    });
    return read;
  }

  private readonly _read = new Map<string, Promise<readonly IRunEvent[]>>();
}
