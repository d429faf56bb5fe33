import type { StreamTable } from '../protocol/frame-table';
import { auditRows, type IRunAudit } from './run-events';

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

/** Rows that are kept: the oldest go. */
const MOST_ROWS = 4096;

/** The newest event of each action, since who came later still learns who paused the training; and the rows themselves. */
export class AuditLog {
  /** In the order in which they came. */
  get rows(): readonly IRunAudit[] {
    return this._rows;
  }

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
    const rows = auditRows(table);
    // What producers and replays say has a clock of its own, so an earlier time alone makes no row a known one.
    const known = rows.every(row => row.time > this.latest) ? null : new Set(this._rows.map(keyOf));
    const fresh = rows.filter(row => !known?.has(keyOf(row)));
    for (const { step, time, who, action } of fresh) {
      this.latest = Math.max(this.latest, time);
      const last = this._newest.get(action);
      if (last === undefined ? this._newest.size < ACTIONS : last.time < time) {
        this._newest.set(action, { step, time, who, action });
      }
    }
    this._rows.push(...fresh);
    this._rows.splice(0, this._rows.length - MOST_ROWS);
    const steps = fresh.map(row => row.step);
    return steps.length === 0 ? null : [Math.min(...steps), Math.max(...steps)];
  }

  /** Forget everything. */
  clear(): void {
    this._newest.clear();
    this._rows.length = 0;
    this.latest = -Infinity;
  }

  private readonly _rows: IRunAudit[] = [];
  private readonly _newest = new Map<string, IAuditEvent>();
  private latest = -Infinity;
}

function keyOf({ step, time, who, action, detail }: IRunAudit): string {
  return JSON.stringify([step, time, who, action, detail]);
}
