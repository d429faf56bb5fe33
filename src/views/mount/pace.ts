import type { IDisposable } from '@lumino/disposable';

/** Least time between two updates that a run asks for, ms: at most 10 a second. */
export const LEAST_INTERVAL = 100;

/**
 * Runs a task when asked, at most 10 times a second, never twice at once, on an animation frame. Requests that come meanwhile are
 * one more run. A hidden page gets no frames, so it costs nothing until it is seen again.
 */
export class Pace implements IDisposable {
  constructor(private readonly _task: () => Promise<void>) {}

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Ask for a run; `now` when a person waits for it. */
  request(now = false): void {
    if (this._isDisposed) {
      return;
    }
    this._wanted = true;
    // While a run goes on nothing is queued: whatever comes is one more run when it ends. A source that is faster than the drawing so
    // costs no memory, and what is drawn next is always the newest.
    if (this._running || (this._timer !== null && !now)) {
      return;
    }
    // Counted from the beginning of the last run: a drawing that takes longer than the interval is followed by the next at once.
    const wait = now ? 0 : Math.max(0, this._last + LEAST_INTERVAL - performance.now());
    clearTimeout(this._timer ?? undefined);
    this._timer = setTimeout(() => this._frame(), wait);
  }

  dispose(): void {
    this._isDisposed = true;
    this._wanted = false;
    clearTimeout(this._timer ?? undefined);
  }

  private _frame(): void {
    // First the timer, then the frame: the frame alone would come 60 times a second, the timer alone also where nobody looks.
    const run = (): void => void this._run();
    if (typeof requestAnimationFrame === 'function') {
      requestAnimationFrame(run);
    } else {
      run();
    }
  }

  private async _run(): Promise<void> {
    this._timer = null;
    if (this._isDisposed || this._running) {
      return;
    }
    // Before the task, not after it: what is asked for while it reads may not be in what it read.
    this._wanted = false;
    this._running = true;
    this._last = performance.now();
    try {
      await this._task();
    } finally {
      this._running = false;
    }
    if (this._wanted) {
      this.request();
    }
  }

  private _timer: ReturnType<typeof setTimeout> | null = null;
  private _wanted = false;
  private _running = false;
  private _last = -Infinity;
  private _isDisposed = false;
}
