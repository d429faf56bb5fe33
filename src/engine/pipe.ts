import { AskReader, type IAskAnswer } from '../client/ask-reader';
import { ClientError } from '../client/rest';
import { type IEngineHost, jobNamed, type IJobResult } from './jobs';
import { timers } from './page-parts';

/** Put the pipe where the engine's process, `megalens/pictures/engine/child.py`, calls it. */
export function expose(): void {
  const pipe = new Pipe();
  const megalensEngine = {
    begin: (name: string, args: string) => pipe.begin(name, args),
    room: (ask: number, length: number) => pipe.room(ask, length),
    answer: (ask: number, json: string) => pipe.answer(ask, json),
    refuse: (ask: number, json: string) => pipe.refuse(ask, json),
    pump: () => pipe.pump(),
    bytes: (index: number) => pipe.bytes(index)
  };
  Object.defineProperty(globalThis, 'megalensEngine', { value: megalensEngine });
}

/**
 * A message to the host, as protocol/README.md lists them; `bytes` is an index among what the host may fetch.
 */
type PipeMessage =
  | { type: 'ask'; ask: number; method: string; body: object }
  | { type: 'progress'; done: number; total: number; words: string }
  | { type: 'done'; json: unknown; bytes?: number }
  | { type: 'failed'; code: string; message: string; field?: string }
  | { type: 'waits' };

interface IPending {
  resolve(answer: IAskAnswer): void;
  reject(error: unknown): void;
}

/**
 * The engine's end of the pipe. V8 cannot call Python, so a job's messages wait in an outbox until `pump` is
 * called. One job runs at a time.
 */
class Pipe {
  begin(name: string, args: string): void {
    this.outbox = [];
    this.given = [];
    this.pending.clear();
    this.buffers.clear();
    timers.clear();
    const turn = ++this.turn;
    const job = jobNamed(name);
    if (job === undefined) {
      this.say(turn, {
        type: 'failed',
        code: 'failed',
        message: `The engine has no job ${JSON.stringify(name)}.`
      });
      return;
    }
    // A job that throws at once fails as one that rejects.
    const work = new Promise<IJobResult>(resolve => resolve(job(JSON.parse(args), this.host(turn))));
    work.then(
      ({ json, bytes }) => {
        const payload = bytes !== undefined && bytes.length > 0 ? { bytes: this.given.push(bytes) - 1 } : {};
        this.say(turn, { type: 'done', json, ...payload });
      },
      error => this.say(turn, failure(error))
    );
  }

  /** Allocate the bytes of an answer, which the host writes before it answers. */
  room(ask: number, length: number): ArrayBuffer {
    const room = new ArrayBuffer(length);
    this.buffers.set(ask, new Uint8Array(room));
    return room;
  }

  answer(ask: number, json: string): void {
    const bytes = this.buffers.get(ask) ?? null;
    this.buffers.delete(ask);
    this.settle(ask, pending => pending.resolve({ json: JSON.parse(json), bytes }));
  }

  refuse(ask: number, json: string): void {
    const { code, message, field } = JSON.parse(json) as {
      code: string;
      message: string;
      field: string | null;
    };
    const details = { status: code === 'too-large' ? 413 : 400, serverCode: code, field: field ?? undefined };
    this.settle(ask, pending => pending.reject(new ClientError('refused', message, details)));
  }

  /**
   * The job's messages since the last call, as JSON. Where there is none the next timer is fired, and without
   * a timer the job waits for an answer, or for what cannot come.
   */
  pump(): string {
    if (this.outbox.length === 0 && !timers.fire()) {
      this.say(
        this.turn,
        this.pending.size > 0
          ? { type: 'waits' }
          : { type: 'failed', code: 'stuck', message: 'The job waits for something that cannot come.' }
      );
    }
    return JSON.stringify(this.outbox.splice(0));
  }

  bytes(index: number): Uint8Array {
    return this.given[index] ?? new Uint8Array(0);
  }

  private host(turn: number): IEngineHost {
    const ask = (method: string, body: object): Promise<IAskAnswer> =>
      new Promise((resolve, reject) => {
        const id = ++this.last;
        this.pending.set(id, { resolve, reject });
        this.say(turn, { type: 'ask', ask: id, method, body });
      });
    return {
      ask,
      progress: (done, total, words) => this.say(turn, { type: 'progress', done, total, words }),
      reader: new AskReader(ask)
    };
  }

  /** Drops messages of a job that is over. */
  private say(turn: number, message: PipeMessage): void {
    if (turn === this.turn) {
      this.outbox.push(message);
    }
  }

  private settle(ask: number, how: (pending: IPending) => void): void {
    const pending = this.pending.get(ask);
    this.pending.delete(ask);
    if (pending !== undefined) {
      how(pending);
    }
  }

  private outbox: PipeMessage[] = [];
  private given: Uint8Array[] = [];
  private readonly pending = new Map<number, IPending>();
  private readonly buffers = new Map<number, Uint8Array>();
  private turn = 0;
  private last = 0;
}

function failure(error: unknown): PipeMessage {
  // V8 rejects with nothing what it ended at the bound of its memory.
  if (error === null || (error instanceof RangeError && error.message.includes('allocation failed'))) {
    return { type: 'failed', code: 'memory', message: 'Out of memory.' };
  }
  const { message, field } = Object(error) as { message?: unknown; field?: unknown };
  const code = error instanceof ClientError ? (error.serverCode ?? error.code) : 'failed';
  return {
    type: 'failed',
    code,
    message: typeof message === 'string' && message !== '' ? message : String(error),
    ...(typeof field === 'string' ? { field } : {})
  };
}
