import type { Config, ConfigPatch, Configured, Control, Mode } from '../../protocol/messages.generated';
import { isOver, type IRunSource, type SourceChange, takesChanges } from '../../store/source';
import { isUnderWay, refusalOf, type ApplyState } from '../trace/draft';
import { SourceModel } from '../shell/source-model';

export type Subject = 'mode' | 'perturb' | 'budget' | 'instruments';

export interface IAuthor {
  /** The person or program; empty where the hub does not know. */
  readonly who: string;
  /** Whether it was asked for on this page. */
  readonly here: boolean;
  /** Seconds since the epoch. */
  readonly time: number | null;
  readonly step: number;
}

/** What the audit calls a subject's being put in force. */
const ACTIONS: Readonly<Record<Subject, string>> = {
  mode: 'pause',
  perturb: 'perturb',
  budget: 'budget',
  instruments: 'configure'
};
const SUBJECTS: readonly Subject[] = ['mode', 'perturb', 'budget', 'instruments'];

/**
 * What may be done to a training beyond looking: whether it waits, what perturbs it, what tracing may cost.
 *
 * One subject is asked about at a time, so that a pause is never held up by a perturbation that waits for its
 * step.
 */
export class ControlModel extends SourceModel {
  constructor(source: IRunSource) {
    super(source);
    this._config = source.hello?.config ?? { flags: {} };
  }

  get config(): Config {
    return this._config;
  }

  /** Whether the run takes changes now. */
  get writable(): boolean {
    return takesChanges(this.source);
  }

  get controls(): readonly Control[] {
    return this.source.hello?.controls ?? [];
  }

  /** Whether the script allows it and the run takes changes now. */
  allows(control: Control): boolean {
    return this.writable && this.controls.includes(control);
  }

  /** Whether the training waits, or will before its next step; also while single steps are taken. */
  get paused(): boolean {
    const { paused, steps } = this._config.mode ?? {};
    const { status } = this.source;
    if (isOver(this.source)) {
      return false;
    }
    return paused === true || steps !== undefined || (status?.state === 'paused' && !this._resumed);
  }

  /** Whether it trains only while somebody watches. */
  get whileWatched(): boolean {
    return this._config.mode?.while_watched === true;
  }

  asked(subject: Subject): ApplyState {
    return this._asked.get(subject) ?? { kind: 'idle' };
  }

  /** Who made the last change to a subject; null where neither this page nor the run's audit knows. */
  author(subject: Subject): IAuthor | null {
    return this._authors.get(subject) ?? this._audited(subject);
  }

  /** Make the training wait, go on, take some steps and wait, or wait whenever nobody watches. */
  setMode(mode: Mode): Promise<void> {
    return this.ask('mode', { mode });
  }

  /** Limit what tracing may cost, in per cent of step time; null lifts the limit. */
  setBudget(budget: number | null): Promise<void> {
    return this.ask('budget', { budget });
  }

  /** Ask for a change. Never rejects: what came of it is in `asked`. */
  async ask(subject: Subject, change: Omit<ConfigPatch, 'flags'>): Promise<void> {
    if (this.asked(subject).kind === 'sent') {
      return;
    }
    // The latest request counts: who pauses may resume before the pause was applied.
    const turn = (this._turns.get(subject) ?? 0) + 1;
    this._turns.set(subject, turn);
    const set = (state: ApplyState) => this._turns.get(subject) === turn && this._set(subject, state);
    set({ kind: 'sent' });
    try {
      const applied = await this.source.configure({ flags: {}, ...change }, message => {
        this._own.add(message.id);
        set({ kind: 'accepted', step: message.step });
      });
      this._config = applied.config;
      set({ kind: 'applied', step: applied.step });
    } catch (error) {
      set(refusalOf(error));
    }
  }

  /** Forget what came of the last request, once its field was edited. */
  settle(subject: Subject): void {
    if (!isUnderWay(this.asked(subject))) {
      this._asked.delete(subject);
    }
  }

  protected heard(change: SourceChange): void {
    switch (change.kind) {
      case 'hello':
        this._config = this.source.hello?.config ?? this._config;
        break;
      case 'status':
        this._resumed = false;
        break;
      case 'configured':
        if (!change.message.applied) {
          return;
        }
        this._take(change.message);
        break;
      case 'connection':
        break;
      case 'rows':
        if (change.stream !== 'audit') {
          return;
        }
        break;
    }
    this.gate.note();
  }

  private _take(message: Configured): void {
    const { config, by, time, step } = message;
    const here = this._own.delete(message.id);
    for (const subject of SUBJECTS) {
      if (meaning(config, subject) !== meaning(this._config, subject)) {
        this._authors.set(subject, { who: by?.user ?? by?.name ?? '', here, time: time ?? null, step });
      }
    }
    this._config = config;
    // The status that says so comes up to two seconds later.
    this._resumed = config.mode?.paused !== true;
  }

  /** What the run's audit says: all that is known of a change that was made before this page looked. */
  private _audited(subject: Subject): IAuthor | null {
    const { who, time, step } = this.source.audit?.get(ACTIONS[subject]) ?? {};
    return who === undefined || time === undefined || step === undefined
      ? null
      : { who, here: false, time, step };
  }

  private _set(subject: Subject, state: ApplyState): void {
    if (!this.isDisposed) {
      this._asked.set(subject, state);
      this.emit();
    }
  }

  private readonly _asked = new Map<Subject, ApplyState>();
  private readonly _turns = new Map<Subject, number>();
  private readonly _authors = new Map<Subject, IAuthor>();
  private readonly _own = new Set<string>();
  private _config: Config;
  private _resumed = false;
}

/** What a subject is set to, so that two ways of writing the same compare as equal. */
function meaning(config: Config, subject: Subject): string {
  switch (subject) {
    case 'mode': {
      const { paused = false, while_watched = false } = config.mode ?? {};
      return JSON.stringify([paused, while_watched]);
    }
    case 'perturb':
      return JSON.stringify(config.perturb ?? null);
    case 'budget':
      return JSON.stringify(config.budget ?? null);
    case 'instruments':
      return JSON.stringify(config.instruments ?? null);
  }
}
