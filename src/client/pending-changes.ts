import { BIT_CAUGHT_UP, type IFrame } from '../protocol/frame';
import type { Hello, Configured, ErrorMessage, Generating } from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import { ClientError } from './rest';

/** The part of a WebSocket that the client uses: the browser's and that of the `ws` package both have it. */
export interface IHubSocket {
  binaryType: string;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

/** Opens a socket to the hub or the relay; the factory knows the address and the headers. */
export type SocketFactory = (protocols: string[]) => IHubSocket;

const FIRST_MS = 250;
const LONGEST_MS = 15_000;

/**
 * Milliseconds before try number `attempt` (from 1) to come back: doubling from 0.25 s to 15 s, half of it
 * random (0 to 1) so that many viewers do not come back at once.
 */
export function backOff(attempt: number, random: number): number {
  const delay = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(attempt - 1, 20));
  return delay / 2 + (delay / 2) * random;
}

export type CloseReason =
  | 'finished'
  | 'gone'
  | 'version'
  | 'forbidden'
  /** What the hub says is not to the contract. */
  | 'unreadable'
  | 'disposed';

/** How a connection stands. Times are milliseconds since the epoch. */
export type HubState =
  /** The first hello has not come yet. */
  | { kind: 'connecting' }
  /** Frames may arrive. */
  | { kind: 'live' }
  /** No frame since then. */
  | { kind: 'stale'; since: number }
  /** The link broke; `attempt` counts the tries to come back. */
  | { kind: 'reconnecting'; attempt: number; message: string }
  /** It will not come back by itself. */
  | { kind: 'closed'; reason: CloseReason; message: string };

export type ClosedState = Extract<HubState, { kind: 'closed' }>;

/** Frames that did not come: sequence numbers, both inclusive. */
export interface IGap {
  readonly first: number;
  readonly last: number;
  /** Whether the hub said that it gave rows up for this viewer. */
  readonly announced: boolean;
}

/**
 * Follows the sequence numbers of one run over all its links: what is new, what is double, what is missing.
 *
 * The numbers rise within a link, those of caught-up frames too, so the newest one says all that this side
 * has.
 */
export class Sequence {
  /** Newest number that this side has, or null; what a join names as `since`. */
  get since(): number | null {
    return this.newest;
  }

  /**
   * Take in the first hello of a link.
   *
   * @returns Whether the numbering goes on; false when the hub counts anew and everything it sends is a first
   * time.
   */
  begin(hello: Hello): boolean {
    const resumes = this.newest !== null && hello.resumed !== undefined && hello.seq >= this.newest;
    if (!resumes) {
      this.newest = null;
    }
    this.resumedLate = (hello.resumed?.missed_frames ?? 0) > 0;
    this.promised = hello.seq;
    this.dropped = 0;
    this.open = [];
    return resumes;
  }

  /** Take in a frame. Answers false for one that came before. */
  accept(frame: IFrame): boolean {
    this.jumped = false;
    if (this.newest !== null && frame.seq <= this.newest) {
      return false;
    }
    if ((frame.bits & BIT_CAUGHT_UP) === 0) {
      // Up to the number in hello the backlog came, and hello said what it lacks.
      const before = Math.max(this.newest ?? 0, this.promised);
      if (frame.seq > before + 1) {
        this.open.push({ first: before + 1, last: frame.seq - 1 });
        this.jumped = true;
      }
    }
    this.jumped ||= this.resumedLate;
    this.resumedLate = false;
    this.newest = frame.seq;
    return true;
  }

  /** Close the gaps seen so far; `dropped` is `status.dropped.viewer` of the next status. */
  settle(dropped: number): IGap[] {
    const announced = dropped > this.dropped;
    this.dropped = dropped;
    const gaps = this.open.map(gap => ({ ...gap, announced }));
    this.open = [];
    return gaps;
  }

  private newest: number | null = null;
  private promised = 0;
  private dropped = 0;
  /** Whether frames are missing before the one that was accepted last. */
  jumped = false;
  /** Whether the hub could not send again all that this side missed. */
  private resumedLate = false;
  private open: { first: number; last: number }[] = [];
}

/**
 * Refused messages and frames of one link after which it is left, and milliseconds that refusing them may
 * take.
 */
const MOST = 200;
const MOST_MS = 3000;

/**
 * How much of what cannot be read one link is forgiven. A hub of a later version may say some things that are
 * not known here; one that says nothing else, or what takes long to refuse, would keep the page busy for
 * good.
 */
export class Patience {
  /** Note what was refused and how long that took; false when patience has run out. */
  refused(ms: number): boolean {
    this.count += 1;
    this.ms += ms;
    return this.count <= MOST && this.ms <= MOST_MS;
  }

  begin(): void {
    this.count = 0;
    this.ms = 0;
  }

  private count = 0;
  private ms = 0;
}

interface IPending<M> {
  resolve(message: M): void;
  reject(error: Error): void;
  accepted?: (message: M) => void;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** What was asked for and not answered yet, by id: changes, or texts to write. */
export class PendingChanges<M extends Configured | Generating> {
  /**
   * @param answerMs - How long the first answer may take. Being applied may take longer: training may be
   * paused.
   * @param late - What to say when it takes longer.
   */
  constructor(
    private readonly answerMs: number,
    private readonly late: string
  ) {}

  /** Enter what was asked for. The promise resolves with its last answer. */
  add(id: string, accepted?: (message: M) => void): Promise<M> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.take(id)?.reject(new ClientError('timeout', this.late));
      }, this.answerMs);
      this.pending.set(id, { resolve, reject, accepted, timer });
    });
  }

  /** Take in an answer to one of our ids; other viewers' are ignored. */
  answered(message: M): void {
    const entry = this.pending.get(message.id);
    if (entry === undefined) {
      return;
    }
    if (message.type === 'configured' && !message.applied) {
      clearTimeout(entry.timer);
      entry.accepted?.(message);
    } else {
      this.take(message.id)?.resolve(message);
    }
  }

  /** Take in an error. Answers whether it was one of ours. */
  refused(message: ErrorMessage): boolean {
    const entry = message.reply_to === undefined ? undefined : this.take(message.reply_to);
    entry?.reject(ProtocolError.fromMessage(message));
    return entry !== undefined;
  }

  rejectAll(error: Error): void {
    for (const id of [...this.pending.keys()]) {
      this.take(id)?.reject(error);
    }
  }

  private take(id: string): IPending<M> | undefined {
    const entry = this.pending.get(id);
    this.pending.delete(id);
    clearTimeout(entry?.timer);
    return entry;
  }

  private readonly pending = new Map<string, IPending<M>>();
}
