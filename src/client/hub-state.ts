/** Why a connection ended for good. */
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

/** The state after which nothing comes. */
export type ClosedState = Extract<HubState, { kind: 'closed' }>;
