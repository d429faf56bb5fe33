import { Signal } from '@lumino/signaling';
import type { Ask, IQuestion } from '../client/rest';
import type { IRunReader } from '../client/run-reader';
import type { IRunDetail } from '../client/runs-api';
import { streamTable } from '../protocol/frame-table';
import { own } from '../protocol/records';
import { pageBytes, readableStreams } from '../protocol/streams';
import { STREAMS } from '../protocol/streams';
import type { Configured, Hello, Phase, Status } from '../protocol/messages.generated';
import type { IScalarAnswer, IScalarLine, ITrendAnswer } from './line-data';
import { RecordingRows, shapeIn, stepsIn, type IRecordingOptions } from './recording';
import type { IRowsQuery, IStreamRows } from './row-store';
import { StreamEvents } from './stream-events';
import { ReadOnce } from './read-once';
import { runEvents, type IRunEvent } from './run-events';
import { RunLink } from './run-link';
import { ScalarStore } from './scalar-store';
import { ServerMoments } from './server-moments';
import type { ConnectionState, IRunSource, IScalarColumns, SourceChange } from './source';
import { closedHere, StoreError, storeError } from './source';
import type { ITensorQuery, ITensorResult, ITensorShape, StepsQuery } from './tensor-data';
import type { TrendRequest } from '../protocol/requests.generated';

export interface IRecordedRunOptions extends IRecordingOptions {
  /** What its views tell one another; a link of its own when absent. */
  link?: RunLink;
  /** Whether what its reader has may become more; as the run's state says when absent. */
  grows?: boolean;
}

const MANY_POINTS = 20_000;

/** A closed run, or a tree of raw-moment files: each query asks its reader for just the rows it needs. */
export class RecordedRun implements IRunSource {
  constructor(
    readonly id: string,
    private readonly detail: IRunDetail,
    private readonly api: IRunReader,
    options: IRecordedRunOptions = {}
  ) {
    this.link = options.link ?? new RunLink();
    this.recording = new RecordingRows(id, api, () => this.name, options);
    const ended = ['finished', 'lost'].includes(detail.status.state) && detail.kind === undefined;
    this.moments = new ServerMoments(id, api.moments, {
      name: () => this.name,
      grows: options.grows ?? !ended,
      more: (firstStep, lastStep) =>
        this.changed.emit({ kind: 'rows', stream: 'moments', firstStep, lastStep })
    });
  }

  readonly moments: ServerMoments;

  readonly link: RunLink;

  get name(): string {
    return this.hello.run.name;
  }

  get hello(): Hello {
    return this.detail.hello;
  }

  /** The last status; streams whose file was cut short are among its warnings. */
  get status(): Status {
    const { status, truncated } = this.detail;
    const own = truncated.map(
      stream => `The recording of ${stream} was cut short; everything up to its last whole message is here.`
    );
    return own.length === 0 ? status : { ...status, warnings: [...(status.warnings ?? []), ...own] };
  }

  readonly connection: ConnectionState = { kind: 'recorded' };

  readonly changed = new Signal<this, SourceChange>(this);

  async steps(flag: string, phase?: Phase, of: StepsQuery = {}): Promise<readonly number[]> {
    return stepsIn(await this.alive().index(), flag, phase, of);
  }

  async shapeOf(flag: string): Promise<ITensorShape> {
    const known = this.hello.flags.find(({ name }) => name === flag);
    return shapeIn(await this.alive().index(), flag, known?.parts);
  }

  async tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult> {
    return this.alive().tensors(query, signal);
  }

  /** Absent where a run of this kind has its rows at hand. */
  readonly trend = async (query: TrendRequest, signal?: AbortSignal): Promise<ITrendAnswer> =>
    this.alive().trend(query, signal);

  /** Absent where a run of this kind has its rows at hand. */
  readonly scalarLines: IRunSource['scalarLines'] = async (query, signal) =>
    this.alive().scalarLines(query, signal);

  async scalars(names?: readonly string[] | null): Promise<IScalarColumns> {
    this.alive();
    return (await this.scalarRows.read()).columns(names);
  }

  async table(stream: string, query: IRowsQuery = {}, signal?: AbortSignal): Promise<IStreamRows> {
    return this.alive().table(stream, readableStreams(this.hello.streams), query, signal);
  }

  async events(): Promise<readonly IRunEvent[]> {
    const missing = (this.status.recording?.missing_steps ?? []).map(([first, last]) => ({
      first,
      last,
      why: 'The recording lacks rows of these steps.'
    }));
    const events = runEvents(await this.auditRows.read(), missing, this.status, this.hello);
    // A picture without the marks of instruments is better than none.
    return this.streamEvents.join(events, this).catch(() => events);
  }

  asker<R extends object, A>(question: IQuestion<R, A>): Ask<R, A> | undefined {
    const ask = this.recording.asker(question);
    return ask && ((request, signal) => (this.alive(), ask(request, signal)));
  }

  configure(): Promise<Configured> {
    return Promise.reject(
      new StoreError(
        'recorded',
        'A recorded run cannot be changed. Choose a live run to change what is traced.'
      )
    );
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.moments.dispose();
    this.recording.dispose();
    this.scalarRows.renew();
    this.auditRows.renew();
    Signal.clearData(this);
  }

  private async loadScalars(): Promise<Pick<ScalarStore, 'columns'>> {
    const store = new ScalarStore(pageBytes(STREAMS.scalars));
    const { bytes, sampledEvery } = await this.api.stream(this.id, 'scalars', {});
    if (sampledEvery > 1) {
      // Too many to be sent: of each line what keeps every extreme.
      return scalarColumns(await this.recording.scalarLines({ points: MANY_POINTS }));
    }
    store.append(streamTable('scalars', bytes), false);
    return store;
  }

  private alive(): RecordingRows {
    if (this._isDisposed) {
      throw closedHere();
    }
    return this.recording;
  }

  protected readonly recording: RecordingRows;
  private readonly scalarRows = new ReadOnce(() =>
    this.loadScalars().catch(error => {
      throw storeError(error, this.name);
    })
  );
  private readonly streamEvents = new StreamEvents();
  private readonly auditRows = new ReadOnce(() => this.alive().audit());
  private _isDisposed = false;
}

/** Lines as columns, in the order of `names`. */
function scalarColumns({ lines, units }: IScalarAnswer): Pick<ScalarStore, 'columns'> {
  return {
    columns: names => {
      const wanted = names ? lines.filter(({ name }) => names.includes(name)) : lines;
      const column = (pick: (line: IScalarLine) => Float64Array): Float64Array =>
        Float64Array.from(wanted.flatMap(line => Array.from(pick(line))));
      return {
        step: column(line => line.steps),
        time: column(line => line.times),
        value: column(line => line.values),
        name: wanted.flatMap(({ name, steps }) => Array.from(steps, () => name)),
        units: Object.fromEntries(wanted.map(({ name }) => [name, own(units, name) ?? ''])),
        thinned: wanted.reduce((sum, { total, steps }) => sum + total - steps.length, 0)
      };
    }
  };
}
