import type { StreamTable } from '../protocol/frame-table';
import type { Hello, Status } from '../protocol/messages.generated';
import { boundedText, translatedLater } from '../protocol/texts';
import type { IMissingSteps } from './tensor-data';

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

/** The newest event of each action, so that late viewers learn who paused the training; and the rows. */
export class AuditLog {
  /** In the order in which they came. */
  readonly rows: IRunAudit[] = [];

  readonly newest = new Map<string, IAuditEvent>();

  /**
   * Add the rows of a frame; rows may come again.
   * @param table - Rows of the `audit` stream.
   * @returns First and last step, or null when nothing was new.
   */
  append(table: StreamTable): [number, number] | null {
    const rows = auditRows(table);
    // What producers and replays say has a clock of its own, so an earlier time alone makes no row a known
    // one.
    const known = rows.every(row => row.time > this.latest) ? null : new Set(this.rows.map(keyOf));
    const fresh = rows.filter(row => !known?.has(keyOf(row)));
    for (const { step, time, who, action } of fresh) {
      this.latest = Math.max(this.latest, time);
      const last = this.newest.get(action);
      if (last === undefined ? this.newest.size < ACTIONS : last.time < time) {
        this.newest.set(action, { step, time, who, action });
      }
    }
    this.rows.push(...fresh);
    this.rows.splice(0, this.rows.length - MOST_ROWS);
    const steps = fresh.map(row => row.step);
    return steps.length === 0 ? null : [Math.min(...steps), Math.max(...steps)];
  }

  clear(): void {
    this.newest.clear();
    this.rows.length = 0;
    this.latest = -Infinity;
  }

  private latest = -Infinity;
}

function keyOf({ step, time, who, action, detail }: IRunAudit): string {
  return JSON.stringify([step, time, who, action, detail]);
}

/** What can happen to a run that its pictures should be read with. */
export type RunEventKind =
  | 'settings'
  | 'perturbation'
  | 'pause'
  | 'resume'
  | 'restart'
  | 'lost'
  | 'nonfinite'
  | 'checkpoint'
  | 'alarm';

export interface IRunEvent {
  readonly kind: RunEventKind;
  /** First and last step, both included; the last is infinite while it goes on. */
  readonly first: number;
  readonly last: number;
  /** What happened, in plain English. */
  readonly text: string;
}

export interface IRunAudit {
  readonly step: number;
  /** Seconds since the epoch. */
  readonly time: number;
  readonly who: string;
  readonly action: string;
  /** The change as JSON text, as somebody sent it. */
  readonly detail: string;
}

export function auditRows(table: StreamTable): IRunAudit[] {
  const column = (name: string): { at(row: number): unknown } => table.getChild(name);
  const [steps, times, people, actions, details] = ['step', 'time', 'who', 'action', 'detail'].map(column);
  return Array.from({ length: table.numRows }, (_, row) => ({
    step: Number(steps?.at(row)),
    time: Number(times?.at(row)),
    who: String(people?.at(row)),
    action: String(actions?.at(row)),
    detail: String(details?.at(row))
  }));
}

/**
 * The events of a run, by their first steps.
 * @param audit - Who changed what, in the order of time.
 * @param hello - How flags are called; names of the code when absent.
 */
export function runEvents(
  audit: readonly IRunAudit[],
  missing: readonly IMissingSteps[],
  status: Status | null,
  hello: Hello | null
): IRunEvent[] {
  const events: IRunEvent[] = missing.map(({ first, last, why }) => ({
    kind: 'lost',
    first,
    last,
    text: why
  }));
  let perturbed: { first: number; last: number; text: string } | null = null;
  const seen = new Set<unknown>();
  const end = (step: number): void => {
    if (perturbed !== null) {
      const last = Math.max(perturbed.first, Math.min(perturbed.last, step - 1));
      events.push({ kind: 'perturbation', ...perturbed, last });
      perturbed = null;
    }
  };
  for (const { step, action, detail } of audit) {
    const change = changeOf(detail);
    const at = { first: step, last: step };
    if (action === 'configure') {
      events.push({ kind: 'settings', ...at, text: settingsText(change['flags'], hello) });
    } else if (action === 'budget') {
      events.push({ kind: 'settings', ...at, text: translatedLater('The budget of tracing changed.') });
    } else if (action === 'perturb' || action === 'disarm') {
      end(step);
      const request = objectOf(change['perturb']);
      const steps = Number(request['steps'] ?? NaN);
      const last = Number.isFinite(steps) ? step + steps - 1 : Infinity;
      perturbed = action === 'perturb' ? { first: step, last, text: perturbText(request) } : null;
    } else if (action === 'pause' || action === 'step') {
      events.push({ kind: 'pause', ...at, text: translatedLater('Training was paused.') });
    } else if (action === 'resume') {
      events.push({ kind: 'resume', ...at, text: translatedLater('Training went on.') });
    } else if (action === 'connect') {
      const rank = change['rank'] ?? 0;
      // Older hubs recorded a second connection where a tracer had learned more of the model in its first
      // step.
      if (seen.has(rank) && step > 1) {
        events.push({ kind: 'restart', ...at, text: `Rank ${Number(rank)} attached again.` });
      }
      seen.add(rank);
    } else if (action === 'checkpoint') {
      events.push({ kind: 'checkpoint', ...at, text: checkpointText(change['name']) });
    } else if (action === 'disconnect' && change['reason'] === 'lost') {
      events.push({ kind: 'lost', ...at, text: `Rank ${Number(change['rank'] ?? 0)} was lost.` });
    }
  }
  end(Infinity);
  const bad = status?.nonfinite?.first;
  if (bad) {
    const text = `The first value that was not finite: ${titleOf(bad.flag, hello)}, layer ${bad.layer}.`;
    events.push({ kind: 'nonfinite', first: bad.step, last: bad.step, text });
  }
  return events.filter(event => event.first >= 0).sort((a, b) => a.first - b.first);
}

/** Say what became of flags. The text came from a viewer: only numbers and known words of it are shown. */
function settingsText(flags: unknown, hello: Hello | null): string {
  const changes = Object.entries(objectOf(flags)).map(([flag, setting]) => {
    const name = objectOf(objectOf(setting)['compressor'])['name'];
    const known = hello?.compressors.some(each => each.name === name);
    return `${titleOf(flag, hello)} ${setting === null ? 'off' : known ? String(name) : 'changed'}`;
  });
  return changes.length === 0
    ? translatedLater('Settings changed.')
    : `Settings changed: ${changes.join(', ')}.`;
}

function perturbText(request: Record<string, unknown>): string {
  const kind = request['kind'];
  return typeof kind === 'string' && /^\w{1,40}$/.test(kind)
    ? `Perturbation: ${kind}.`
    : translatedLater('Perturbation.');
}

/** What was saved, by the name that it came with, which may be anybody's. */
function checkpointText(name: unknown): string {
  const shown = boundedText(name, 80).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\ufffd');
  return shown === '' ? translatedLater('Checkpoint saved.') : `Checkpoint saved: ${shown}`;
}

function titleOf(flag: string, hello: Hello | null): string {
  return hello?.flags.find(({ name }) => name === flag)?.title ?? flag.slice(0, 60);
}

function changeOf(detail: string): Record<string, unknown> {
  try {
    const change = objectOf(JSON.parse(detail));
    return 'patch' in change ? objectOf(change['patch']) : change;
  } catch {
    return {};
  }
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}
