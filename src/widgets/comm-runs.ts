import { AskReader, type IAskAnswer } from '../client/ask-reader';
import { ClientError } from '../client/rest';
import type { IHubSocket, SocketFactory } from '../client/pending-changes';
import { listOf, runAnswerOf, type IRunDetail, type IRunEntry } from '../client/runs-api';
import { Runs } from '../store/runs';
import { version } from '../version';
import type { IWidgetRuns } from './runs';

/** The part of a widget's model that every front end of anywidget has. */
export interface ICommModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
}

/** Bytes that came and were not yet said to have come: the kernel sends a few MiB ahead of that. */
const TOLD_EVERY = 1024 * 1024;

/** A hub's WebSocket that the kernel holds: what the hub says comes over the widget's comm. */
class CommSocket implements IHubSocket {
  constructor(private readonly tell: (body: object) => void) {}

  binaryType = 'arraybuffer';
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  onerror: ((event: never) => void) | null = null;

  send(text: string): void {
    this.tell({ text });
  }

  close(): void {
    this.tell({ close: true });
  }

  /** Take one thing that was said; `frame` gives the next bytes. */
  receive(
    { text, open, closed }: Record<string, unknown>,
    frame: () => Uint8Array<ArrayBuffer> | undefined
  ): void {
    if (open === true) {
      this.onopen?.({} as never);
    } else if (typeof closed === 'number') {
      this.onclose?.({ code: closed, reason: '' } as never);
    } else {
      const data = typeof text === 'string' ? text : (frame() ?? new Uint8Array());
      this.untold += data.length;
      if (this.untold >= TOLD_EVERY) {
        this.tell({ took: this.untold });
        this.untold = 0;
      }
      this.onmessage?.({ data } as never);
    }
  }

  private untold = 0;
}

/** After so long without an answer a person reads that the kernel is busy or gone. */
const LATE_MS = 4000;

interface IWaiting {
  resolve(answer: IAskAnswer): void;
  reject(error: unknown): void;
}

/** Asks the kernel also whether a run is live. */
class CommReader extends AskReader {
  async get(id: string): Promise<IRunDetail | IRunEntry> {
    return runAnswerOf((await this.put('run', { run: id })).json);
  }
}

/**
 * Bytes of newest frames that a hub sends at once: a kernel's messages carry few MB a second, and the first
 * picture waits for all of them. The kernel answers for the rest, which its own viewer or the recording has.
 */
const BACKLOG = 512 << 10;

/**
 * The runs as a widget's kernel reads them: its questions and the hub's frames go over the widget's comm. The
 * kernel sends to every page that shows the widget, so that each takes what bears its own ids only.
 */
export class CommRuns implements IWidgetRuns {
  /** @param late - Hears whether the kernel has answered nothing for a while although it was asked. */
  constructor(
    private readonly model: ICommModel,
    private readonly late: (isLate: boolean) => void = () => undefined
  ) {
    model.on('msg:custom', this.receive);
    const api = new CommReader((method, body) => this.ask(method, body));
    const peer = { name: 'panel', version };
    this.runs = new Runs({ api, openSocket: id => this.socketOf(id), peer, live: { backlog: BACKLOG } });
  }

  async list(): ReturnType<IWidgetRuns['list']> {
    return listOf((await this.ask('runs', {})).json).runs;
  }

  /** Translations into the first of some languages that there is, by text; none for English. */
  async words(languages: readonly string[]): Promise<Readonly<Record<string, string>>> {
    if (/^(en\b|$)/.test(languages[0] ?? '')) {
      return {};
    }
    const { words } = Object((await this.ask('words', { accepted: languages.join() })).json);
    return Object(words) as Record<string, string>;
  }

  acquire(id: string): ReturnType<IWidgetRuns['acquire']> {
    return this.runs.acquire(id);
  }

  /** Close all runs, and wait for nothing any more. */
  dispose(): void {
    this.runs.dispose();
    clearTimeout(this.timer);
    this.model.off('msg:custom', this.receive);
    const closed = new ClientError('disposed', 'The view was closed.');
    this.waiting.forEach(each => each.reject(closed));
    this.waiting.clear();
  }

  private ask(method: string, body: object): Promise<IAskAnswer> {
    return new Promise((resolve, reject) => {
      const ask = this.newId();
      this.waiting.set(ask, { resolve, reject });
      this.timer ??= setTimeout(this.late, LATE_MS, true);
      this.model.send({ ask, method, body });
    });
  }

  private socketOf(run: string): SocketFactory {
    return () => {
      const socket = this.newId();
      const made = new CommSocket(body => {
        this.model.send({ socket, ...body });
        if ('close' in body) {
          this.sockets.delete(socket);
        }
      });
      this.sockets.set(socket, made);
      this.model.send({ socket, run });
      return made;
    };
  }

  private readonly receive = (content: unknown, buffers?: readonly DataView[]): void => {
    const { ask, socket, said, refusal, json } = Object(content) as Record<string, unknown>;
    // Copied: readers of columns need their numbers to lie where numbers of that size may.
    const copies = (buffers ?? []).map(each =>
      new Uint8Array(each.buffer, each.byteOffset, each.byteLength).slice()
    );
    if (typeof socket === 'string' && Array.isArray(said)) {
      for (const each of said as unknown[]) {
        this.sockets.get(socket)?.receive(Object(each) as Record<string, unknown>, () => copies.shift());
      }
    }
    const waiting = typeof ask === 'string' ? this.waiting.get(ask) : undefined;
    if (waiting === undefined) {
      return;
    }
    this.waiting.delete(String(ask));
    clearTimeout(this.timer);
    this.timer = this.waiting.size === 0 ? undefined : setTimeout(this.late, LATE_MS, true);
    this.late(false);
    if (refusal === undefined) {
      waiting.resolve({ json, bytes: copies[0] ?? null });
    } else {
      waiting.reject(refused(Object(refusal) as Record<string, unknown>));
    }
  };

  private newId(): string {
    this.last += 1;
    return `${this.page}-${this.last}`;
  }

  private readonly runs: Runs;
  private readonly waiting = new Map<string, IWaiting>();
  private readonly sockets = new Map<string, CommSocket>();
  private readonly page = Math.random().toString(36).slice(2);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last = 0;
}

function refused({ code, message, field }: Record<string, unknown>): ClientError {
  return new ClientError('refused', String(message), {
    status: code === 'not-found' ? 404 : code === 'too-large' ? 413 : 400,
    serverCode: String(code),
    field: typeof field === 'string' ? field : undefined
  });
}
