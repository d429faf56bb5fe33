import { Signal } from '@lumino/signaling';
import { HubConnection, type HubEvent, type IHubConnectionOptions } from '../client/hub-connection';
import { BIT_CAUGHT_UP, releaseFrame, type IFrame } from '../protocol/frame';
import { frameTable } from '../protocol/frame-table';
import { STREAMS } from '../protocol/streams';
import { pageBytes } from '../protocol/streams';
import type { ConfigPatch, Configured, Hello, Phase, Status } from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import { own } from '../protocol/records';
import type { Ask, IQuestion } from '../client/rest';
import type { ITensorIndex } from '../client/run-reader';
import { ChangeGate, joinRows, joinShapes, joinTables, keyColumns, LivePast } from './live-past';
import type { IScalarAnswer, ITrendAnswer } from './line-data';
import { LiveMoments } from './live-moments';
import { MomentStore } from './moment-store';
import { ascending, shapeIn, stepsIn, type RecordingRows } from './recording';
import { StreamEvents } from './stream-events';
import { AuditLog, type IAuditEvent, runEvents, type IRunEvent } from './run-events';
import { RowStore, type IRowsQuery, type IStreamRows } from './row-store';
import { RunLink } from './run-link';
import { ScalarStore } from './scalar-store';
import type { ServerMoments } from './server-moments';
import type { ConnectionState, IRunSource, IScalarColumns, SourceChange } from './source';
import { closedHere, noStream } from './source';
import type { ITensorQuery, ITensorResult, ITensorShape, StepsQuery } from './tensor-data';
import { tensorRows } from './tensor-data';
import { TensorStore } from './tensor-store';
import type { TrendRequest } from '../protocol/requests.generated';

export interface ILiveRunOptions extends IHubConnectionOptions {
  /** Run id, where it is known before hello. */
  id?: string;
  /** Name until hello says another one. */
  name?: string;
  /** What its views tell one another; a link of its own when absent. */
  link?: RunLink;
  /** Bytes of tensors to keep; as the stream's policy says when absent. */
  tensorBytes?: number;
  /** Bytes of scalars to keep; as the stream's policy says when absent. */
  scalarBytes?: number;
  /** Rows of statistics to keep; 1.5 million when absent. */
  momentRows?: number;
  /** Statistics as the server reads them from the recording; absent if nobody can. Disposed with the run. */
  recording?: ServerMoments;
  /** The other streams as the server reads them from the recording; as `recording`. */
  rows?: RecordingRows;
}

/** Takes a frame's rows in: first and last step, or null when nothing was new. */
type Append = (frame: IFrame, mayRepeat: boolean) => [number, number] | null;

/** A run that is going on: what its hub sends, kept in bounded memory. */
export class LiveRun implements IRunSource {
  constructor(options: ILiveRunOptions) {
    this.link = options.link ?? new RunLink();
    this._id = options.id ?? '';
    this._name = options.name ?? options.id ?? '';
    this.tensorStore = new TensorStore(options.tensorBytes ?? pageBytes(STREAMS.tensors));
    this.scalarStore = new ScalarStore(options.scalarBytes ?? pageBytes(STREAMS.scalars));
    this.moments = new LiveMoments(new MomentStore(options.momentRows), options.recording ?? null);
    this.past = new LivePast(options.rows ?? null);
    this.gate = new ChangeGate(change => this.changed.emit(change));
    this.hub = new HubConnection(options);
    this.hub.event.connect(this.onEvent, this);
  }

  readonly link: RunLink;

  readonly moments: LiveMoments;

  get id(): string {
    return this._id;
  }

  get name(): string {
    return this._name;
  }

  get hello(): Hello | null {
    return this._hello;
  }

  /** The hub's status; sentences on what this side missed are among its warnings. */
  get status(): Status | null {
    const status = this._status;
    const warnings = this.warnings();
    return status === null || warnings.length === 0
      ? status
      : { ...status, warnings: [...(status.warnings ?? []), ...warnings] };
  }

  get connection(): ConnectionState {
    return this.hub.state;
  }

  get reading(): readonly [number, number] | null {
    const { newest } = this.past;
    const last = this._status?.step ?? -1;
    return this.isBehind && newest !== null && newest < last ? [newest + 1, last] : null;
  }

  get audit(): ReadonlyMap<string, IAuditEvent> {
    return this.auditLog.newest;
  }

  readonly changed = new Signal<this, SourceChange>(this);

  /** Frames that neither came nor were announced as given up. */
  get missedFrames(): number {
    return this._missedFrames;
  }

  get unreadable(): number {
    return this._unreadable;
  }

  get bytes(): number {
    const others = [...this.rowStores.values()].reduce((sum, store) => sum + store.bytes, 0);
    return this.tensorStore.bytes + this.scalarStore.bytes + this.moments.bytes + others;
  }

  async steps(flag: string, phase?: Phase, of: StepsQuery = {}): Promise<readonly number[]> {
    const here = this.alive().tensorStore.steps(flag, phase, of);
    const there = await this.indexed();
    return there.length === 0 ? here : ascending([...stepsIn(there, flag, phase, of), ...here]);
  }

  async shapeOf(flag: string): Promise<ITensorShape> {
    const here = this.alive().tensorStore.shapeOf(flag);
    const index = await this.indexed();
    return index.length === 0 ? here : joinShapes(shapeIn(index, flag), here);
  }

  /**
   * Tensors, of steps that memory does not hold those of the recording. A query for statistics (`reduced`) is
   * answered from memory alone: `trendBefore` gives what lies before.
   */
  async tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult> {
    signal?.throwIfAborted();
    const { tensorStore, past } = this.alive();
    const here = tensorStore.query(query);
    const [first, last] = query.steps ?? [-Infinity, Infinity];
    const missing = past.missing(first, last, this._status);
    const lackingTo = Math.max(past.joined, here.lackingTo ?? -Infinity);
    const stated = { ...here, ...(lackingTo >= first && lackingTo > 1 ? { lackingTo } : {}), missing };
    const upTo = query.measured ? past.joined : Math.max(past.joined, here.kept?.thinnedTo ?? -Infinity);
    // Of all steps at once only what is here: they may be more than a page can hold.
    if (query.reduced || query.steps === undefined || (query.measured && last > upTo) || upTo < 1) {
      return stated;
    }
    const there = await past.tensors(query, upTo, signal);
    return there === null ? stated : { ...stated, ...joinRows(there, here) };
  }

  async trendBefore(query: TrendRequest, upTo: number, signal?: AbortSignal): Promise<ITrendAnswer | null> {
    return this.alive().past.trend(query, upTo, signal);
  }

  /** Scalars as the recording has them, once they became too many for memory. */
  get scalarLines(): IRunSource['scalarLines'] {
    return this.isThinned
      ? async (query, signal) =>
          (await this.past.read(recording => recording.scalarLines(query, signal))) ?? NO_SCALARS
      : undefined;
  }

  async events(): Promise<readonly IRunEvent[]> {
    const { past, auditLog, _status: status } = this.alive();
    const events = runEvents(auditLog.rows, past.missing(0, Infinity, status), status, this._hello);
    // The hub keeps all rows of such streams and sends them to whoever comes later.
    const table = async (stream: string): Promise<IStreamRows> =>
      this.rowStores.get(stream)?.rows() ?? { columns: {}, length: 0, evictedRows: 0, sampledEvery: 1 };
    return this.streamEvents.join(events, { hello: this._hello, table });
  }

  async scalars(names?: readonly string[] | null): Promise<IScalarColumns> {
    return this.alive().scalarStore.columns(names);
  }

  async table(stream: string, query?: IRowsQuery, signal?: AbortSignal): Promise<IStreamRows> {
    signal?.throwIfAborted();
    const info = this.alive().hub.streams.get(stream);
    if (info === undefined || own(this.stores, stream) !== undefined) {
      throw noStream(stream, this.hub.streams.keys());
    }
    const keys = keyColumns(info);
    // Rows here and in the recording are distinguished by columns that nobody may have asked for.
    const asked = query?.columns ? { ...query, columns: [...query.columns, ...keys] } : (query ?? {});
    const here = (this.rowStores.get(stream) ?? new RowStore(info)).rows(asked);
    if (this.past.joined <= 1 && here.evictedRows === 0) {
      return here;
    }
    const there = await this.past.read(recording => recording.table(stream, this.hub.streams, asked, signal));
    return there === null ? here : joinTables(there, here, keys);
  }

  asker<R extends object, A>(question: IQuestion<R, A>): Ask<R, A> {
    return (request, signal) =>
      this.alive().past.read(async recording => (await recording.asker(question)?.(request, signal)) ?? null);
  }

  async configure(patch: ConfigPatch, accepted?: (message: Configured) => void): Promise<Configured> {
    return this.alive().hub.configure(patch, accepted);
  }

  get generate(): IRunSource['generate'] {
    return this.writes
      ? async request => {
          const { generation, control = null } = await this.alive().hub.generate(request);
          return { generation, control };
        }
      : undefined;
  }

  get cancelGeneration(): IRunSource['cancelGeneration'] {
    return this.writes ? async generation => void (await this.alive().hub.cancel(generation)) : undefined;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Leave the hub and forget the rows. */
  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    // First of all: who hears of a change asks for rows, and there are none any more.
    Signal.clearData(this);
    this.hub.dispose();
    this.gate.dispose();
    this.tensorStore.clear();
    this.scalarStore.clear();
    this.rowStores.clear();
    this.past.dispose();
    this.moments.dispose();
  }

  private onEvent(_: HubConnection, event: HubEvent): void {
    switch (event.kind) {
      case 'state':
        this.changed.emit({ kind: 'connection' });
        break;
      case 'hello':
        this.onHello(event.hello, event.fresh);
        break;
      case 'status':
        this._status = event.status;
        void this.refill(event.status.step);
        this.changed.emit({ kind: 'status' });
        break;
      case 'frame':
        this.onFrame(event.frame, event.jumped);
        break;
      case 'configured':
        if (this._hello !== null && event.message.applied) {
          this._hello = { ...this._hello, config: event.message.config };
        }
        this.changed.emit({ kind: 'configured', message: event.message });
        break;
      case 'gap':
        if (!event.gap.announced) {
          this._missedFrames += event.gap.last - event.gap.first + 1;
          this.changed.emit({ kind: 'status' });
        }
        break;
      case 'problem':
        this._unreadable += event.error.code === 'bad-frame' || event.error.code === 'bad-message' ? 1 : 0;
        break;
    }
  }

  private onHello(hello: Hello, fresh: boolean): void {
    if (fresh && this._hello !== null) {
      if (this._hello.run.id === hello.run.id) {
        // The hub was started again for the same run: what it sends may be here already.
        this.mayRepeat = true;
        this.anew = true;
      } else {
        this.tensorStore.clear();
        this.scalarStore.clear();
        this.moments.clear();
        this.auditLog.clear();
        this.rowStores.clear();
        this.streamEvents.renew();
        this.past.clear();
        this._status = null;
      }
    }
    this._hello = hello;
    this._id = this._id || hello.run.id;
    this._name = hello.run.name;
    this.changed.emit({ kind: 'hello' });
  }

  private onFrame(frame: IFrame, jumped: boolean): void {
    let span: [number, number] | null = null;
    if (jumped || this.anew) {
      this.past.lose(frame.step);
      this.moments.lose();
      this.anew = false;
    }
    if (this.hub.streams.get(frame.stream)?.policy.marks_step !== false) {
      const before = this.reading;
      this.isBehind = (frame.bits & BIT_CAUGHT_UP) !== 0;
      this.past.newest = Math.max(this.past.newest ?? 0, frame.step);
      if (before !== null && this.reading === null) {
        this.changed.emit({ kind: 'connection' });
      }
    }
    const mayRepeat = this.mayRepeat && (frame.bits & BIT_CAUGHT_UP) !== 0;
    try {
      span = (own(this.stores, frame.stream) ?? this.appendRows)(frame, mayRepeat);
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this._unreadable += 1;
    }
    if (span !== null) {
      this.streamEvents.renew(frame.stream);
      this.gate.note(frame.stream, ...span);
    }
  }

  /** Take in rows of a stream that has no store of its own. */
  private readonly appendRows: Append = (frame, mayRepeat) => {
    const table = frameTable(frame, this.hub.streams);
    const info = this.hub.streams.get(frame.stream);
    let store = this.rowStores.get(frame.stream);
    if (store === undefined && info !== undefined) {
      store = new RowStore(info);
      this.rowStores.set(frame.stream, store);
    }
    return store?.append(table, mayRepeat) ?? null;
  };

  /** What the recording has, where there is something that is not here. */
  private async indexed(): Promise<readonly ITensorIndex[]> {
    const upTo = Math.max(this.past.joined, this.tensorStore.thinnedTo);
    return upTo < 1 || (this.past.joined <= 1 && upTo <= 1) ? [] : this.past.index(upTo);
  }

  private get writes(): boolean {
    return this._hello?.controls?.includes('generate') ?? false;
  }

  private get isThinned(): boolean {
    return this.scalarStore.thinned > 0 && this.past.isRecorded;
  }

  private async refill(step: number): Promise<void> {
    try {
      await this.past.refill(step, (rows, first, last) => {
        if (!this._isDisposed) {
          rows.forEach(row => this.tensorStore.add(row));
          this.gate.note('tensors', first, last);
        }
      });
    } catch {
      // What is missing stays named; the next status tries again.
    }
  }

  private warnings(): string[] {
    const warnings: string[] = [];
    if (this._missedFrames > 0) {
      warnings.push(
        `${this._missedFrames} data frames did not arrive here and were not announced as given up.`
      );
    }
    if (this._unreadable > 0) {
      warnings.push(`${this._unreadable} messages of the hub could not be read here and were left out.`);
    }
    return warnings;
  }

  private alive(): this {
    if (this._isDisposed) {
      throw closedHere();
    }
    return this;
  }

  private readonly hub: HubConnection;
  private readonly gate: ChangeGate;
  private readonly auditLog = new AuditLog();
  private readonly streamEvents = new StreamEvents();
  /** Streams that are kept for what their views ask; every other one is kept row by row. */
  private readonly stores: Readonly<Partial<Record<string, Append>>> = {
    tensors: frame => {
      const rows = tensorRows(frameTable(frame));
      rows.forEach(row => this.tensorStore.add(row));
      const steps = rows.map(row => row.step);
      releaseFrame(frame);
      if (this.past.isEmpty && steps.length > 0) {
        this.past.join(Math.min(...steps));
      }
      return rows.length > 0 ? [Math.min(...steps), Math.max(...steps)] : null;
    },
    scalars: (frame, mayRepeat) => this.scalarStore.append(frameTable(frame), mayRepeat),
    moments: (frame, mayRepeat) => this.moments.append(frameTable(frame), frame.step, mayRepeat),
    audit: frame => this.auditLog.append(frameTable(frame))
  };
  private readonly rowStores = new Map<string, RowStore>();
  private readonly past: LivePast;
  private readonly tensorStore: TensorStore;
  private readonly scalarStore: ScalarStore;
  private _id: string;
  private _name: string;
  private _hello: Hello | null = null;
  private _status: Status | null = null;
  private mayRepeat = false;
  /** Whether what came last was kept by the hub, from before it was asked for. */
  private isBehind = false;
  /** Whether the hub was started again and nothing came of it yet. */
  private anew = false;
  private _missedFrames = 0;
  private _unreadable = 0;
  private _isDisposed = false;
}

const NO_SCALARS: IScalarAnswer = { lines: [], units: {}, missing: [] };
