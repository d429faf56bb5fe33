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

/**
 * Opens a socket to the hub or the relay. The factory knows the address and whatever headers it takes.
 *
 * @param protocols - Subprotocols to offer.
 */
export type SocketFactory = (protocols: string[]) => IHubSocket;
