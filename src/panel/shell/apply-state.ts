import { ProtocolError } from '../../protocol/protocol-error';

/** Where a change that was asked for stands. */
export type ApplyState =
  | { kind: 'idle' }
  /** Sent, the hub has not answered. */
  | { kind: 'sent' }
  /** Accepted; it takes effect at this step or after. */
  | { kind: 'accepted'; step: number }
  | { kind: 'applied'; step: number }
  /** Refused; `field` is the hub's dotted path. */
  | { kind: 'refused'; message: string; field: string | null; column: number | null };

/** What the hub found at a field: its words, and the column inside an expression. */
export interface IFault {
  readonly message: string;
  readonly column: number | null;
}

/** Read an error as the state of the change that it answers. */
export function refusalOf(error: unknown): Extract<ApplyState, { kind: 'refused' }> {
  const fault = error instanceof ProtocolError ? error : null;
  return {
    kind: 'refused',
    message: error instanceof Error ? error.message : String(error),
    field: fault?.field?.replace(/^patch\./, '') ?? null,
    column: fault?.column ?? null
  };
}

/** What a refusal says about one object, by the field within it; the object itself is the empty name. */
export function faultsIn(state: ApplyState, path: string): ReadonlyMap<string, IFault> {
  const field = state.kind === 'refused' ? state.field : null;
  if (state.kind !== 'refused' || field === null || !(field === path || field.startsWith(`${path}.`))) {
    return new Map();
  }
  const { message, column } = state;
  return new Map([[field.slice(path.length + 1), { message, column }]]);
}

/** Whether an answer is still awaited. */
export function isUnderWay(state: ApplyState): boolean {
  return state.kind === 'sent' || state.kind === 'accepted';
}
