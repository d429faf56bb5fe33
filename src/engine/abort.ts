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
    const told = [...this.listeners];
    this.listeners.clear();
    told.forEach(listener => (typeof listener === 'function' ? listener() : listener.handleEvent()));
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
