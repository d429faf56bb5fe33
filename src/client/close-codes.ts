import type { Goodbye, RunState } from '../protocol/messages.generated';
import type { ClosedState } from './hub-state';

/** What a client knew when its socket closed. */
export interface ILastWords {
  /** The run's last state, where a status came. */
  runState?: RunState;
  /** The hub's goodbye, where one came. */
  goodbye?: Goodbye;
  /** The last error that the hub sent without naming a request. */
  error?: string;
}

/**
 * Say whether a close is an end or whether to come back, as the table in protocol/README.md says.
 *
 * @param code - WebSocket close code.
 * @param reason - The peer's text, may be empty.
 * @param last - What came before.
 * @returns The final state, or null to come back.
 */
export function endOf(code: number, reason: string, last: ILastWords): ClosedState | null {
  const said = last.error ?? last.goodbye?.message ?? reason;
  const closed = (kind: ClosedState['reason'], message: string): ClosedState => ({
    kind: 'closed',
    reason: kind,
    message: said ? `${message} ${said}` : message
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
export function breakOf(code: number, last: ILastWords): string {
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
