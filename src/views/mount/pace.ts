import type { IDisposable } from '@lumino/disposable';

/** Least time between two updates that a run asks for, ms: at most 10 a second. */
export const LEAST_INTERVAL = 100;
/** The same where a person waits for what the run sends, ms. */
export const AWAITED_INTERVAL = 50;
/** The same for an update that changes less than can be seen, ms. */
export const CALM_INTERVAL = 500;

/** A single slow answer is no reason to wait long for the next picture, ms. */
const MOST_TAKEN = 150;
/** Of its time a picture that follows a run takes at most this part: several stand on one page, which must stay quick. */
const MOST_SHARE = 0.1;
/** The same of one that a person waits for. */
const AWAITED_SHARE = 0.3;

/**
 * Runs a task when asked, at most 10 times a second (20 where a person waits) and no more than a part of the time, never twice at once, on an animation frame. Requests
 * that come meanwhile are one more run. What is out of sight waits until it is seen, unless a person waits for it; a hidden page gets no
 * frames, so it costs nothing either.
 */
export class Pace implements IDisposable {
  constructor(private readonly _task: () => Promise<void>) {}

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Whether what the task draws can be seen. What was asked for meanwhile is run when it is. */
  set isSeen(isSeen: boolean) {
    this._isSeen = isSeen;
    if (isSeen && this._wanted) {
      this.request(true);
    }
  }

  /**
   * Ask for a run.
   *
   * @param now - Whether a person waits for it.
   * @param least - Least time since the last run; of several requests the shortest counts, ms.
   */
  request(now = false, least = LEAST_INTERVAL): void {
    if (this._isDisposed) {
      return;
    }
    this._least = this._wanted ? Math.min(this._least, least) : least;
    this._wanted = true;
    // While a run goes on nothing is queued: whatever comes is one more run when it ends. A source that is faster than the drawing so
    // costs no memory, and what is drawn next is always the newest.
    if (this._running || (!now && !this._isSeen)) {
      return;
    }
    // Counted from the beginning of the last run.
    const share = this._least < LEAST_INTERVAL ? AWAITED_SHARE : MOST_SHARE;
    const interval = Math.max(this._least, Math.min(this._took, MOST_TAKEN) / share);
    const due = now ? -Infinity : this._last + interval;
    if (this._timer !== null && due >= this._due) {
      return;
    }
    this._due = due;
    clearTimeout(this._timer ?? undefined);
    this._timer = setTimeout(() => this._frame(), Math.max(0, due - performance.now()));
  }

  /** Run now what waits for its turn, or until it is seen: somebody waits for it. */
  hurry(): void {
    if (this._wanted) {
      this.request(true);
    }
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
      // The first run also loads and compiles what all others use.
      this._took = this._isFirst ? 0 : performance.now() - this._last;
      this._isFirst = false;
    }
    if (this._wanted) {
      this.request(false, this._least);
    }
  }

  private _timer: ReturnType<typeof setTimeout> | null = null;
  /** When it runs. */
  private _due = 0;
  private _wanted = false;
  private _least = LEAST_INTERVAL;
  private _running = false;
  private _last = -Infinity;
  private _took = 0;
  private _isFirst = true;
  private _isSeen = true;
  private _isDisposed = false;
}
