import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { decodeFrame, type IFrame } from '../protocol/frame';
import { SUBPROTOCOL, decodeMessage, encodeMessage } from '../protocol/messages';
import type {
  Goodbye,
  RunState,
  Cancel,
  ConfigPatch,
  Configure,
  Configured,
  Generate,
  GenerateRequest,
  Generating,
  Hello,
  Join,
  Peer,
  Status
} from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import { readableStreams, type StreamMap } from '../protocol/streams';
import { ClientError } from './rest';
import type { IGap, ClosedState, IHubSocket, SocketFactory, HubState } from './pending-changes';
import { Patience, PendingChanges, Sequence, backOff } from './pending-changes';

/** What a client knew when its socket closed. */
interface ILastWords {
  runState?: RunState;
  goodbye?: Goodbye;
  /** The last error that the hub sent without naming a request. */
  error?: string;
}

/**
 * Say whether a close is an end or whether to come back, as the table in protocol/README.md says.
 *
 * @returns The final state, or null to come back.
 */
function endOf(code: number, reason: string, last: ILastWords): ClosedState | null {
  const detail = last.error ?? last.goodbye?.message ?? reason;
  const closed = (kind: ClosedState['reason'], message: string): ClosedState => ({
    kind: 'closed',
    reason: kind,
    message: detail ? `${message} ${detail}` : message
  });
  switch (code) {
    case 1000:
    case 1001:
      if (last.runState === 'finished' || last.goodbye?.reason === 'finished') {
        return closed('finished', 'The run has finished.');
      }
      return last.goodbye === undefined && code === 1001
        ? null
        : closed('gone', 'The hub has shut down. Look for another run, or open the recording.');
    case 1009:
      return closed('gone', 'The hub refused a message that was too large.');
    case 4400:
      return closed('gone', 'The hub could not read what this client sent. Update the older side.');
    case 4403:
      return closed('forbidden', 'The hub refused this client.');
    case 4404:
      return closed('gone', 'There is no such run any more. Choose another one from the list.');
    case 4406:
      return closed('version', 'The hub speaks another version of the protocol. Update the older side.');
    case 4410:
      return closed('gone', 'The Jupyter server cut the link, because the hub said what no hub may.');
    default:
      return null;
  }
}

/** One sentence on why a link broke that will be tried again. */
function breakOf(code: number, last: ILastWords): string {
  switch (code) {
    case 4408:
      return 'The hub heard nothing from this client in time.';
    case 4429:
      return 'This client was too slow and the hub cut the link.';
    case 4502:
      return last.error ?? 'The Jupyter server could not reach the hub.';
    default:
      return last.error ?? 'The link to the hub broke.';
  }
}

export interface IHubConnectionOptions {
  /** Opens a socket; called again for every try to come back. */
  openSocket: SocketFactory;
  /** How this program names itself to the hub and to other viewers. */
  peer: Peer;
  /** Bytes of past tensors frames to ask for at most; the hub's own bound when absent. */
  backlog?: number;
  /** No frame for this long is `stale`; 3 s when absent. */
  staleMs?: number;
  /** A link without any word for this long is given up; 10 s when absent (a status comes every 2 s). */
  silentMs?: number;
  /** How long a change may go without its first answer; 10 s when absent. */
  answerMs?: number;
  /**
   * Asked after every failed try: a final state when coming back is pointless, null to go on. A browser is
   * not told why an upgrade was refused, so this is where a login that ran out or a run that was closed is
   * found out.
   */
  diagnose?: () => Promise<ClosedState | null>;
}

export type HubEvent =
  | { kind: 'state'; state: HubState }
  /** `fresh` when the hub counts anew: nothing that was received before belongs to its numbers. */
  | { kind: 'hello'; hello: Hello; fresh: boolean }
  | { kind: 'status'; status: Status }
  /** `jumped` when frames are missing before it. */
  | { kind: 'frame'; frame: IFrame; jumped: boolean }
  | { kind: 'configured'; message: Configured }
  | { kind: 'gap'; gap: IGap }
  /** Something unreadable or refused came; the connection goes on. */
  | { kind: 'problem'; error: ProtocolError };

const TICK_MS = 500;
const HELLO_MS = 10_000;
const NO_LINK = 'There is no link to the hub now, so nothing was asked. Try again when the run is live.';

/**
 * A viewer's connection to one hub, directly or through the Jupyter server's relay.
 *
 * It joins, comes back by itself with what it already has, and says what it missed. It keeps no rows.
 */
export class HubConnection implements IDisposable {
  constructor(private readonly options: IHubConnectionOptions) {
    const answerMs = options.answerMs ?? 10_000;
    this.changes = new PendingChanges(
      answerMs,
      'The training process did not answer the change in time. Check that it is running.'
    );
    this.requests = new PendingChanges(
      answerMs,
      'The process that holds the model did not answer in time. Check that it is running.'
    );
    this.openSocket();
    this.ticker = setInterval(() => this.tick(), TICK_MS);
  }

  /**
   * Ask for a change of what is traced.
   *
   * @param accepted - Called with the step from which the change can apply.
   * @returns The answer when it is applied.
   * @throws ProtocolError as the hub refused it; ClientError when the link is down or breaks before the
   * answer.
   */
  configure(patch: ConfigPatch, accepted?: (message: Configured) => void): Promise<Configured> {
    return this.ask(
      id => ({ type: 'configure', id, patch }),
      id => this.changes.add(id, accepted),
      'There is no link to the hub now, so nothing was changed. Try again when the run is live.'
    );
  }

  /**
   * Have the model write text. How it goes is told by rows of the stream `generations`.
   *
   * @returns The answer, with the number of the generation.
   * @throws ProtocolError as the hub or the producer refused it; ClientError when the link is down or breaks
   * before the answer.
   */
  generate(request: GenerateRequest): Promise<Generating> {
    return this.ask(
      id => ({ type: 'generate', id, request }),
      id => this.requests.add(id),
      NO_LINK
    );
  }

  /** End a generation that waits or runs; rejects as `generate` does. */
  cancel(generation: number): Promise<Generating> {
    return this.ask(
      id => ({ type: 'cancel', id, generation }),
      id => this.requests.add(id),
      NO_LINK
    );
  }

  /** Send `goodbye`, close, and reject what is open. */
  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.isDisposed = true;
    if (this.joined) {
      this.socket?.send(encodeMessage({ type: 'goodbye', reason: 'leaving' }));
    }
    this.end({ kind: 'closed', reason: 'disposed', message: 'The connection was closed here.' }, 'disposed');
    Signal.clearData(this);
  }

  /** Send something that is answered by id. */
  private ask<M>(
    message: (id: string) => Cancel | Configure | Generate,
    add: (id: string) => Promise<M>,
    unlinked: string
  ): Promise<M> {
    const socket = this.joined ? this.socket : null;
    if (socket === null) {
      return Promise.reject(new ClientError(this.isDisposed ? 'disposed' : 'disconnected', unlinked));
    }
    this.asked += 1;
    const id = `${this.options.peer.name.slice(0, 40)}-${this.asked}`;
    let text: string;
    try {
      text = encodeMessage(message(id));
    } catch (error) {
      return Promise.reject(error);
    }
    const answer = add(id);
    socket.send(text);
    return answer;
  }

  private openSocket(): void {
    this.last = {};
    this.joined = false;
    this.patience.begin();
    this.heard = Date.now();
    this.deadline = this.heard + HELLO_MS;
    let socket: IHubSocket;
    try {
      socket = this.options.openSocket([SUBPROTOCOL]);
    } catch (error) {
      this.broke(1006, String(error));
      return;
    }
    this.socket = socket;
    const mine = (): boolean => this.socket === socket;
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => mine() && this.join(socket);
    socket.onmessage = (event: { data: unknown }) => mine() && this.receive(event.data);
    // A close always follows an error and carries more.
    socket.onerror = () => undefined;
    socket.onclose = (event: { code: number; reason: string }) =>
      mine() && this.broke(event.code, String(event.reason));
  }

  private join(socket: IHubSocket): void {
    const join: Join = { type: 'join', protocol: SUBPROTOCOL, role: 'viewer', peer: this.options.peer };
    if (this.sequence.since !== null && this.run !== null) {
      join.since = this.sequence.since;
      join.run = this.run;
    }
    if (this.options.backlog !== undefined && join.since === undefined) {
      join.backlog = this.options.backlog;
    }
    socket.send(encodeMessage(join));
  }

  private receive(data: unknown): void {
    this.heard = Date.now();
    const start = performance.now();
    try {
      if (typeof data === 'string') {
        this.receiveMessage(data);
      } else if (data instanceof ArrayBuffer || ArrayBuffer.isView(data)) {
        this.receiveFrame(decodeFrame(data));
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        throw error;
      }
      this.event.emit({ kind: 'problem', error });
      if (error.code === 'version-mismatch') {
        this.end({ kind: 'closed', reason: 'version', message: error.message }, 'disconnected');
      } else if (
        // Without its hello nothing of a run can be shown, and the next link would bring the same one.
        !this.joined ||
        error.code === 'too-large' ||
        !this.patience.refused(performance.now() - start)
      ) {
        this.end({ kind: 'closed', reason: 'unreadable', message: error.message }, 'disconnected');
      }
    }
  }

  private receiveMessage(text: string): void {
    const message = decodeMessage(text, ['hello', 'status', 'configured', 'generating', 'error', 'goodbye']);
    switch (message.type) {
      case 'hello':
        this.receiveHello(message);
        break;
      case 'status':
        this.last.runState = message.state;
        if (message.state === 'paused') {
          // Training that waits because somebody asked for it sends no frames, and is not late with any.
          this.framed = Date.now();
          if (this.state.kind === 'stale') {
            this.setState({ kind: 'live' });
          }
        }
        this.event.emit({ kind: 'status', status: message });
        for (const gap of this.sequence.settle(message.dropped?.viewer ?? 0)) {
          this.event.emit({ kind: 'gap', gap });
        }
        break;
      case 'configured':
        this.changes.answered(message);
        this.event.emit({ kind: 'configured', message });
        break;
      case 'generating':
        this.requests.answered(message);
        break;
      case 'error':
        if (!this.changes.refused(message) && !this.requests.refused(message)) {
          this.last.error = message.message;
          this.event.emit({ kind: 'problem', error: ProtocolError.fromMessage(message) });
        }
        break;
      case 'goodbye':
        this.last.goodbye = message;
        break;
    }
  }

  private receiveHello(hello: Hello): void {
    let fresh = false;
    if (!this.joined) {
      this.joined = true;
      this.attempt = 0;
      fresh = !this.sequence.begin(hello);
      this.run = hello.run.id;
      this.framed = Date.now();
      this.setState({ kind: 'live' });
    }
    this.streams = readableStreams(hello.streams);
    this.event.emit({ kind: 'hello', hello, fresh });
  }

  private receiveFrame(frame: IFrame): void {
    this.framed = Date.now();
    if (this.state.kind === 'stale') {
      this.setState({ kind: 'live' });
    }
    if (!this.sequence.accept(frame)) {
      return;
    }
    if (this.streams.has(frame.stream)) {
      this.event.emit({ kind: 'frame', frame, jumped: this.jumped || this.sequence.jumped });
      this.jumped = false;
    } else {
      this.skippedFrames += 1;
      this.jumped ||= this.sequence.jumped;
    }
  }

  private tick(): void {
    const now = Date.now();
    const late = now - this.ticked > TICK_MS * 4;
    this.ticked = now;
    // A tab that slept or a busy kernel wakes with old clocks: what came meanwhile is read first.
    if (late || this.socket === null) {
      return;
    }
    if (!this.joined && now > this.deadline) {
      this.broke(1006, '');
    } else if (this.joined && now - this.heard > (this.options.silentMs ?? 10_000)) {
      this.last.error = 'The hub fell silent.';
      this.broke(1006, '');
    } else if (
      this.state.kind === 'live' &&
      this.last.runState !== 'paused' &&
      now - this.framed > (this.options.staleMs ?? 3000)
    ) {
      this.setState({ kind: 'stale', since: this.framed });
    }
  }

  private broke(code: number, reason: string): void {
    const end = endOf(code, reason, this.last);
    if (end !== null) {
      this.end(end, 'disconnected');
      return;
    }
    this.drop();
    this.changes.rejectAll(
      new ClientError(
        'disconnected',
        'The link to the hub broke before it answered. Look at the settings in force and try again.'
      )
    );
    this.requests.rejectAll(
      new ClientError(
        'disconnected',
        'The link to the hub broke before it answered. Look whether the text is written, and try again.'
      )
    );
    this.attempt += 1;
    this.setState({ kind: 'reconnecting', attempt: this.attempt, message: breakOf(code, this.last) });
    void this.comeBack();
  }

  private async comeBack(): Promise<void> {
    const { attempt } = this;
    // A hook that fails knows nothing, so the next try decides.
    const end = await this.options.diagnose?.().catch(() => null);
    if (this.state.kind !== 'reconnecting' || this.attempt !== attempt) {
      return;
    }
    if (end) {
      this.end(end, 'disconnected');
      return;
    }
    this.timer = setTimeout(() => this.openSocket(), backOff(attempt, Math.random()));
  }

  private end(state: ClosedState, code: 'disconnected' | 'disposed'): void {
    clearInterval(this.ticker);
    clearTimeout(this.timer);
    this.drop();
    this.changes.rejectAll(new ClientError(code, state.message));
    this.requests.rejectAll(new ClientError(code, state.message));
    if (this.state.kind !== 'closed') {
      this.setState(state);
    }
  }

  private drop(): void {
    const { socket } = this;
    this.socket = null;
    this.joined = false;
    socket?.close(1000);
  }

  private setState(state: HubState): void {
    this.state = state;
    this.event.emit({ kind: 'state', state });
  }

  readonly event = new Signal<this, HubEvent>(this);
  private readonly changes: PendingChanges<Configured>;
  private readonly requests: PendingChanges<Generating>;
  private readonly sequence = new Sequence();
  private readonly patience = new Patience();
  private readonly ticker: ReturnType<typeof setInterval>;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private socket: IHubSocket | null = null;
  private joined = false;
  /** Whether frames are missing before one that nobody here reads. */
  private jumped = false;
  private run: string | null = null;
  private last: ILastWords = {};
  private attempt = 0;
  private asked = 0;
  private heard = 0;
  private framed = 0;
  private deadline = 0;
  private ticked = Date.now();
  state: HubState = { kind: 'connecting' };
  /** The streams of the run that can be read here, as the newest hello names them. */
  streams: StreamMap = readableStreams(undefined);
  /**
   * Frames of streams that cannot be read here: nobody declared them, or their columns are of a later
   * version.
   */
  skippedFrames = 0;
  isDisposed = false;
}
