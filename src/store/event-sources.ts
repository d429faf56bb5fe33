import type { IStreamRows } from './row-store';
import type { IRunEvent } from './run-events';

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
