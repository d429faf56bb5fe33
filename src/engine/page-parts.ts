const CHUNK = 8192;

/** What V8 has of base64, and TypeScript does not know yet. */
interface IBase64 {
  toBase64(): string;
}

/** `btoa`: bytes, given as the characters U+0000 to U+00FF, as base64. */
export function toBase64(text: string): string {
  const bytes: unknown = Uint8Array.from(text, letter => letter.charCodeAt(0));
  return (bytes as IBase64).toBase64();
}

/** `TextEncoder`: UTF-8, with U+FFFD for half of a pair. */
export class Encoder {
  readonly encoding = 'utf-8';

  encode(text = ''): Uint8Array {
    const out = new Uint8Array(text.length * 3);
    let at = 0;
    for (let from = 0; from < text.length; from += 1) {
      let point = text.codePointAt(from) ?? 0;
      if (point < 0x80) {
        out[at++] = point;
      } else {
        from += point > 0xffff ? 1 : 0;
        point = point >= 0xd800 && point <= 0xdfff ? 0xfffd : point;
        const more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
        out[at++] = [0, 0xc0, 0xe0, 0xf0][more]! | (point >> (6 * more));
        for (let left = more - 1; left >= 0; left--) {
          out[at++] = 0x80 | ((point >> (6 * left)) & 63);
        }
      }
    }
    return out.slice(0, at);
  }
}

/** `TextDecoder` of UTF-8. What Arrow holds is valid, so anything else becomes U+FFFD, a byte at a time. */
export class Decoder {
  readonly encoding = 'utf-8';

  decode(input?: ArrayBuffer | ArrayBufferView): string {
    if (input === undefined) {
      return '';
    }
    const bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    const parts: string[] = [];
    const units: number[] = [];
    for (let at = 0; at < bytes.length;) {
      const [point, length] = pointAt(bytes, at);
      at += length;
      if (point >= 0x10000) {
        units.push(0xd800 | ((point - 0x10000) >> 10), 0xdc00 | ((point - 0x10000) & 0x3ff));
      } else {
        units.push(point);
      }
      if (units.length >= CHUNK) {
        parts.push(String.fromCharCode(...units.splice(0)));
      }
    }
    parts.push(String.fromCharCode(...units));
    return parts.join('');
  }
}

function pointAt(bytes: Uint8Array, at: number): [point: number, length: number] {
  const first = bytes[at]!;
  if (first < 0x80) {
    return [first, 1];
  }
  const more =
    first >= 0xf0 && first < 0xf5
      ? 3
      : first >= 0xe0 && first < 0xf0
        ? 2
        : first >= 0xc2 && first < 0xe0
          ? 1
          : 0;
  let point = first & (0x3f >> more);
  for (let next = 1; next <= more; next++) {
    const byte = bytes[at + next] ?? 0;
    if ((byte & 0xc0) !== 0x80) {
      return [0xfffd, 1];
    }
    point = (point << 6) | (byte & 63);
  }
  const least = [Infinity, 0x80, 0x800, 0x10000][more]!;
  const isValid = point >= least && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff);
  return isValid ? [point, more + 1] : [0xfffd, 1];
}

type Listener = (() => void) | { handleEvent(): void };

/** What of `AbortSignal` the views and stores use. */
export class Signal {
  aborted = false;
  reason: unknown = undefined;
  onabort: (() => void) | null = null;

  static any(signals: readonly Signal[]): Signal {
    const either = new Signal();
    const first = signals.find(signal => signal.aborted);
    if (first !== undefined) {
      either.abort(first.reason);
    }
    signals.forEach(signal => signal.addEventListener('abort', () => either.abort(signal.reason)));
    return either;
  }

  throwIfAborted(): void {
    if (this.aborted) {
      throw this.reason;
    }
  }

  addEventListener(_type: string, listener: Listener): void {
    this.listeners.add(listener);
  }

  removeEventListener(_type: string, listener: Listener): void {
    this.listeners.delete(listener);
  }

  abort(reason: unknown): void {
    if (this.aborted) {
      return;
    }
    this.aborted = true;
    this.reason = reason ?? abortError();
    this.onabort?.();
    // Nothing is told twice.
    const listeners = [...this.listeners];
    this.listeners.clear();
    listeners.forEach(listener => (typeof listener === 'function' ? listener() : listener.handleEvent()));
  }

  private readonly listeners = new Set<Listener>();
}

/** `AbortController`. */
export class Controller {
  readonly signal = new Signal();

  abort(reason?: unknown): void {
    this.signal.abort(reason);
  }
}

function abortError(): Error {
  const error = new Error('This operation was aborted');
  error.name = 'AbortError';
  return error;
}

/** A timer that waits. */
interface ITimer {
  readonly id: number;
  /** Virtual milliseconds. */
  readonly due: number;
  readonly callback: () => void;
}

/**
 * Timers without a clock: the time of the engine passes when nothing else is left to do, and then at once to
 * the next timer. Two runs of one job take the same turns, however busy the machine is.
 */
class Timers {
  /** `setTimeout`. */
  readonly start = (callback: (...args: unknown[]) => void, delay = 0, ...args: unknown[]): number => {
    const due = this.now + Math.max(0, Number(delay) || 0);
    this.timers.push({ id: ++this.last, due, callback: () => callback(...args) });
    return this.last;
  };

  /** `clearTimeout`. */
  readonly stop = (id?: number): void => {
    this.timers = this.timers.filter(timer => timer.id !== id);
  };

  /** Virtual milliseconds since the engine was started. */
  now = 0;

  /** Fire the timer that is due first, of two the one that was started first; false where there is none. */
  fire(): boolean {
    const next = this.timers.reduce<ITimer | null>(
      (first, timer) => (first === null || timer.due < first.due ? timer : first),
      null
    );
    if (next === null) {
      return false;
    }
    this.stop(next.id);
    this.now = Math.max(this.now, next.due);
    next.callback();
    return true;
  }

  clear(): void {
    this.timers = [];
  }

  private timers: ITimer[] = [];
  private last = 0;
}

export const timers = new Timers();
