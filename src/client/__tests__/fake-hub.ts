import { SUBPROTOCOL, type Message } from '../../protocol';
import type { IHubSocket } from '..';

/** A hub that keeps what it is sent, and says what the test says. */
export class FakeHub implements IHubSocket {
  readonly protocol = SUBPROTOCOL;
  binaryType = '';
  onopen: IHubSocket['onopen'] = null;
  onmessage: IHubSocket['onmessage'] = null;
  onclose: IHubSocket['onclose'] = null;
  onerror: IHubSocket['onerror'] = null;
  readonly asked: Message[] = [];
  closed = false;

  send(data: string): void {
    this.asked.push(JSON.parse(data) as Message);
  }

  close(): void {
    this.closed = true;
  }

  open(): void {
    this.onopen?.({} as never);
  }

  say(data: unknown): void {
    const text = typeof data === 'string' || ArrayBuffer.isView(data) ? data : JSON.stringify(data);
    this.onmessage?.({ data: text } as never);
  }
}
