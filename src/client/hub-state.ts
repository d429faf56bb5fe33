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
