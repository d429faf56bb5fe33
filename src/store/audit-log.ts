import type { StreamTable } from '../protocol/frame-table';

/** One event that changed what a run does: who, what, and the step at which it took effect. */
export interface IAuditEvent {
  readonly step: number;
  /** Seconds since the epoch. */
  readonly time: number;
  readonly who: string;
  /** As `protocol/streams.json` lists them: configure, perturb, disarm, pause, … */
  readonly action: string;
}

/** More actions than the protocol knows: what a peer invents takes no memory without end. */
const ACTIONS = 32;

/** The newest event of each action: who came later still learns who paused the training. */
export class AuditLog {
  /** By action. */
  get newest(): ReadonlyMap<string, IAuditEvent> {
    return this._newest;
  }

  /**
   * Add the rows of a frame; rows may come again.
   *
   * @param table - Rows of the `audit` stream.
   * @returns First and last step, or null when nothing was new.
   */
  append(table: StreamTable): [number, number] | null {
    const [steps, times, people, actions] = table.children;
    let span: [number, number] | null = null;
    for (let row = 0; row < table.numRows; row += 1) {
      const action = String(actions?.at(row));
      const [step, time] = [Number(steps?.at(row)), Number(times?.at(row))];
      const known = this._newest.get(action);
      if (known === undefined ? this._newest.size < ACTIONS : known.time < time) {
        this._newest.set(action, { step, time, who: String(people?.at(row)), action });
        span = [Math.min(span?.[0] ?? step, step), Math.max(span?.[1] ?? step, step)];
      }
    }
    return span;
  }

  /** Forget everything. */
  clear(): void {
    this._newest.clear();
  }

  private readonly _newest = new Map<string, IAuditEvent>();
}
