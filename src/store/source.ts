import type { ISignal } from '@lumino/signaling';
import type { CloseReason } from '../client/pending-changes';
import { type Ask, type IQuestion, ClientError } from '../client/rest';
import type {
  Configured,
  ConfigPatch,
  GenerateRequest,
  Hello,
  Phase,
  Status
} from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import type { IScalarAnswer, ITrendAnswer } from './line-data';
import type { IMomentSource } from './row-moments';
import type { IRowsQuery, IStreamRows } from './row-store';
import type { IAuditEvent, IRunEvent } from './run-events';
import type { ITensorQuery, ITensorResult, ITensorShape, StepsQuery } from './tensor-data';
import type { RunLink } from './run-link';
import type { ScalarsRequest, TrendRequest } from '../protocol/requests.generated';

/** Why a source could not answer. */
type StoreErrorCode =
  /** The source or the manager was disposed of. */
  | 'disposed'
  /** A recorded run cannot be changed. */
  | 'recorded'
  /** The run has no such stream, or it is answered by a method of its own. */
  | 'no-stream'
  /** There is no such run any more. */
  | 'gone'
  /** The server did not answer or refused; `cause` says more. */
  | 'unavailable'
  /** What came cannot be read. */
  | 'unreadable';

/** The one error class of the store room: what happened and what to do. */
export class StoreError extends Error {
  constructor(
    readonly code: StoreErrorCode,
    message: string,
    options: ErrorOptions = {}
  ) {
    super(message, options);
  }

  override readonly name = 'StoreError';
}

/** What a source rejects with that was disposed of. */
export const closedHere = (): StoreError =>
  new StoreError('disposed', 'This run was closed here. Open it again from the list of runs.');

/** What a source rejects with when it is asked for rows of a stream that it cannot give. */
export function noStream(stream: string, known: Iterable<string>): StoreError {
  const names = [...known];
  return new StoreError(
    'no-stream',
    names.includes(stream)
      ? `The rows of ${stream} are asked for by a method of their own.`
      : `This run has no stream ${stream}. It has ${names.join(', ')}.`
  );
}

/**
 * What a source rejects with instead of an error of the rooms below it.
 * @param error - What was caught; an aborted signal's reason and unexpected errors stay as they are.
 */
export function storeError(error: unknown, run: string): unknown {
  if (error instanceof ClientError) {
    return new StoreError(error.status === 404 ? 'gone' : 'unavailable', error.message, { cause: error });
  }
  if (error instanceof ProtocolError) {
    const message = `The recording of ${run} could not be read: ${error.message}`;
    return new StoreError('unreadable', message, { cause: error });
  }
  return error;
}

/** Whether a run takes changes now: it is live and its training has not ended. */
export function takesChanges(source: IRunSource): boolean {
  const { kind } = source.connection;
  return (kind === 'live' || kind === 'stale') && !isOver(source);
}

/** Whether a run's training has ended, as far as is known here: it is recorded, or said so. */
export function isOver({ connection, status }: Pick<IRunSource, 'connection' | 'status'>): boolean {
  return (
    connection.kind === 'recorded' ||
    (connection.kind === 'closed' && connection.reason === 'finished') ||
    status?.state === 'finished' ||
    status?.state === 'lost'
  );
}

/** State of the connection of a source to its run, as shown to the user. */
export type ConnectionState =
  /** The first hello has not come yet. */
  | { kind: 'connecting' }
  /** Live, frames may arrive. */
  | { kind: 'live' }
  /** Live, but no frame for 3 s; `since` is the last one's time, milliseconds since the epoch. */
  | { kind: 'stale'; since: number }
  /** The link broke; `attempt` counts the tries to come back. */
  | { kind: 'reconnecting'; attempt: number; message: string }
  /** A closed run read from its folder. */
  | { kind: 'recorded' }
  /** It does not reconnect: the run ended, the hub is gone, versions differ, or access was refused. */
  | { kind: 'closed'; reason: CloseReason; message: string };

/** What changed in a source. `rows` comes at most every 16 ms. */
export type SourceChange =
  | { kind: 'hello' }
  | { kind: 'status' }
  | { kind: 'connection' }
  | { kind: 'rows'; stream: string; firstStep: number; lastStep: number }
  | { kind: 'configured'; message: Configured };

/** Scalars as columns, ordered by step within a name. All arrays have one length. */
export interface IScalarColumns {
  readonly step: Float64Array;
  /** Seconds since the epoch. */
  readonly time: Float64Array;
  readonly value: Float64Array;
  readonly name: readonly string[];
  /** Unit by name. */
  readonly units: Readonly<Record<string, string>>;
  /** Rows between local extremes given up to stay within memory, over all names; absent is none. */
  readonly thinned?: number;
}

/** What became of a request to write text. */
export interface IGenerationStart {
  readonly generation: number;
  /** Number of the clean one beside it, where there is a perturbation; null where there is none. */
  readonly control: number | null;
}

/**
 * A run as the views see it, live or recorded. Views, charts and panel know runs only through this.
 *
 * Queries answer from memory where they can; a recorded source asks the server for just the rows that it
 * lacks. They reject with a `StoreError` that says what to do.
 */
export interface IRunSource {
  readonly id: string;
  readonly name: string;
  readonly hello: Hello | null;
  readonly status: Status | null;
  readonly connection: ConnectionState;
  /** First and last step that are still being sent to a page that came later; null if all are here. */
  readonly reading?: readonly [number, number] | null;
  readonly changed: ISignal<IRunSource, SourceChange>;
  /** The newest event of each action of a live run's audit; absent where nobody can act. */
  readonly audit?: ReadonlyMap<string, IAuditEvent>;
  /** The run's statistics; absent if it has none. Changes are reported as `rows` of the stream `moments`. */
  readonly moments?: IMomentSource;
  /** What the views of this run tell one another; absent where there is one view only. */
  readonly link?: RunLink;
  /** Steps for which a flag has tensors, ascending. */
  steps(flag: string, phase?: Phase, of?: StepsQuery): Promise<readonly number[]>;
  shapeOf(flag: string): Promise<ITensorShape>;
  tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult>;
  scalars(names?: readonly string[] | null): Promise<IScalarColumns>;
  /**
   * A statistic of tensors over steps, as lines. Absent where `tensors` has the rows at hand: `readTrend` in
   * `aggregate/` makes the same answer of them.
   */
  trend?(query: TrendRequest, signal?: AbortSignal): Promise<ITrendAnswer>;
  /** Scalars as lines. Absent where `scalars` has all rows: `readScalars` then makes the same answer. */
  scalarLines?(query: ScalarsRequest, signal?: AbortSignal): Promise<IScalarAnswer>;
  /**
   * The part of a trend that the recording has and `tensors` has not; null where there is none. Of a run
   * whose `tensors` has the rows at hand.
   * @param upTo - Newest step of which `tensors` may lack something.
   */
  trendBefore?(query: TrendRequest, upTo: number, signal?: AbortSignal): Promise<ITrendAnswer | null>;
  /** Events of the run by step: changes, perturbations, pauses, losses. Absent if nobody knows them. */
  events?(): Promise<readonly IRunEvent[]>;
  /** Rows of a stream by its name in `hello.streams`; of live runs only streams without their own method. */
  table(stream: string, query?: IRowsQuery, signal?: AbortSignal): Promise<IStreamRows>;
  /** How the recording is asked a question of an instrument; absent or undefined if nobody answers it. */
  asker?<R extends object, A>(question: IQuestion<R, A>): Ask<R, A> | undefined;
  /**
   * Ask for a change. Resolves when it is applied; `accepted` is called with the step from which it can
   * apply. Rejects with the hub's typed error.
   */
  configure(patch: ConfigPatch, accepted?: (message: Configured) => void): Promise<Configured>;
  /**
   * Have the model write text. Absent where nobody can be asked: of recorded runs, and of those whose
   * `hello.controls` lacks `generate`. How it goes is reported by rows of the stream `generations`. Rejects
   * with the typed error of the hub or of the producer.
   */
  generate?(request: GenerateRequest): Promise<IGenerationStart>;
  /** End a generation that waits or runs; as `generate`. */
  cancelGeneration?(generation: number): Promise<void>;
  readonly isDisposed: boolean;
  dispose(): void;
}
