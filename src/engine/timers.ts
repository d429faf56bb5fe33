/** A timer that waits. */
interface ITimer {
  readonly id: number;
  /** Virtual milliseconds. */
  readonly due: number;
  readonly callback: () => void;
}

/**
 * Timers without a clock: the time of the engine passes when nothing else is left to do, and then at once to the next timer. Two runs of one job
 * take the same turns, however busy the machine is.
 */
export class Timers {
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

  /** Forget all timers. */
  clear(): void {
    this.timers = [];
  }

  private timers: ITimer[] = [];
  private last = 0;
}

/** The engine's timers. */
export const timers = new Timers();
