import { Signal, type ISignal } from '@lumino/signaling';
import type { Config, Configured, FlagInfo, FlagSetting, Hello } from '../protocol/messages.generated';
import { ProtocolError } from '../protocol/protocol-error';
import type { IRunSource, SourceChange } from '../store/source';
import {
  compressorWithDefaults,
  effective,
  firstSetting,
  fullSetting,
  isAvailable,
  patchOf,
  type Draft,
  type IFullSetting
} from './draft';
import { estimateBytes, positionsOf } from './estimate';

/** Where an Apply stands. */
export type ApplyState =
  | { kind: 'idle' }
  /** Sent, the hub has not answered. */
  | { kind: 'sent' }
  /** Accepted; it takes effect at this step or after. */
  | { kind: 'accepted'; step: number }
  | { kind: 'applied'; step: number }
  /** Refused; `field` is the hub's dotted path. */
  | { kind: 'refused'; message: string; field: string | null; column: number | null };

/** Settings that another viewer changed. */
export interface IForeignChange {
  readonly who: string;
  /** Seconds since the epoch. */
  readonly time: number | null;
  readonly step: number;
  /** Flags that differ, with their new setting; null is off. */
  readonly flags: Readonly<Record<string, FlagSetting | null>>;
}

/** One flag as the panel shows it. */
export interface IFlagRow {
  readonly info: FlagInfo;
  readonly available: boolean;
  /** Setting after Apply, null when off. */
  readonly setting: IFullSetting | null;
  readonly edited: boolean;
  /** Fault that the hub found in this flag, by field within the flag. */
  readonly faults: ReadonlyMap<string, { message: string; column: number | null }>;
}

/**
 * What a run traces, and the changes being written.
 *
 * Everything that can be picked comes from `hello`. Edits gather in a draft; `apply` sends only what differs from the
 * configuration in force, so that two viewers do not undo each other.
 */
export class TraceModel {
  constructor(private readonly source: IRunSource) {
    this._config = source.hello?.config ?? { flags: {} };
    source.changed.connect(this._onSource, this);
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get hello(): Hello | null {
    return this.source.hello;
  }

  /** The configuration in force. */
  get config(): Config {
    return this._config;
  }

  get apply(): ApplyState {
    return this._apply;
  }

  /** The last change by someone else, until dismissed. */
  get foreign(): IForeignChange | null {
    return this._foreign;
  }

  /** Whether there is something to apply. */
  get dirty(): boolean {
    return patchOf(this._draft, this._config) !== null;
  }

  /** Whether the run takes changes now. */
  get writable(): boolean {
    const { kind } = this.source.connection;
    const state = this.source.status?.state;
    return (kind === 'live' || kind === 'stale') && state !== 'finished' && state !== 'lost';
  }

  /** Whether anything is traced now. */
  get tracing(): boolean {
    return Object.keys(this._config.flags).length > 0;
  }

  /** One row per flag of hello, in its order. */
  get rows(): readonly IFlagRow[] {
    return (this.hello?.flags ?? []).map(info => {
      const setting = effective(info.name, this._draft, this._config);
      const prefix = `flags.${info.name}.`;
      const refused = this._apply.kind === 'refused' ? this._apply : null;
      const here = refused?.field === `flags.${info.name}` || refused?.field?.startsWith(prefix);
      const faults = new Map(
        refused !== null && here
          ? [
              [
                (refused.field ?? '').slice(prefix.length),
                { message: refused.message, column: refused.column }
              ]
            ]
          : []
      );
      return {
        info,
        available: isAvailable(info),
        setting: setting === null ? null : fullSetting(setting),
        edited: patchOf(new Map([[info.name, setting]]), this._config) !== null,
        faults
      };
    });
  }

  /** Bytes per step that the draft is expected to send; `complete` is false when a flag's size is not known yet. */
  get estimate(): { bytes: number; complete: boolean } {
    let bytes = 0;
    let complete = true;
    const positions = positionsOf(this.hello?.flags ?? []);
    for (const { info, setting } of this.rows) {
      if (setting !== null) {
        const size = estimateBytes(info, setting, positions);
        bytes += size ?? 0;
        complete &&= size !== null;
      }
    }
    return { bytes, complete };
  }

  /** Switch a flag on with its last or the first setting, or off. */
  toggle(flag: string, on: boolean): void {
    if (!on) {
      const last = effective(flag, this._draft, this._config);
      if (last !== null) {
        this._last.set(flag, last);
      }
      this._edit(flag, null);
      return;
    }
    const setting =
      this._last.get(flag) ?? this._config.flags[flag] ?? firstSetting(this.hello?.compressors ?? []);
    if (setting !== null) {
      this._edit(flag, setting);
    }
  }

  /** Change members of a flag's setting. */
  change(flag: string, members: Partial<FlagSetting>): void {
    const now = effective(flag, this._draft, this._config);
    if (now !== null) {
      this._edit(flag, { ...now, ...members });
    }
  }

  /** Choose a flag's compressor, with the defaults that hello names. */
  chooseCompressor(flag: string, name: string): void {
    const info = this.hello?.compressors.find(candidate => candidate.name === name);
    if (info !== undefined) {
      this.change(flag, { compressor: compressorWithDefaults(info) });
    }
  }

  /** Change one parameter of a flag's compressor; undefined leaves it out. */
  changeParameter(flag: string, name: string, value: unknown): void {
    const compressor = effective(flag, this._draft, this._config)?.compressor;
    if (compressor !== undefined) {
      const params: Record<string, unknown> = { ...compressor.params };
      if (value === undefined) {
        delete params[name];
      } else {
        params[name] = value;
      }
      this.change(flag, { compressor: { name: compressor.name, params } });
    }
  }

  /** Forget the edits. */
  revert(): void {
    this._draft = new Map();
    this._apply = { kind: 'idle' };
    this._changed.emit();
  }

  /** Send the edits. Never rejects: what came of it is in `apply`. */
  async submit(): Promise<void> {
    const patch = patchOf(this._draft, this._config);
    if (patch === null || this._apply.kind === 'sent' || this._apply.kind === 'accepted') {
      return;
    }
    const sent = this._draft;
    this._setApply({ kind: 'sent' });
    try {
      const applied = await this.source.configure(patch, message => {
        this._own.add(message.id);
        this._setApply({ kind: 'accepted', step: message.step });
      });
      this._config = applied.config;
      // Edits made while it was under way stay.
      this._draft = new Map([...this._draft].filter(([flag, setting]) => sent.get(flag) !== setting));
      this._setApply({ kind: 'applied', step: applied.step });
    } catch (error) {
      const fault = error instanceof ProtocolError ? error : null;
      this._setApply({
        kind: 'refused',
        message: error instanceof Error ? error.message : String(error),
        field: fault?.field?.replace(/^patch\./, '') ?? null,
        column: fault?.column ?? null
      });
    }
  }

  /** Stop showing what another viewer changed. */
  dismissForeign(): void {
    this._foreign = null;
    this._changed.emit();
  }

  /** Let go of the source. Safe twice. */
  dispose(): void {
    this._disposed = true;
    this.source.changed.disconnect(this._onSource, this);
    Signal.clearData(this);
  }

  private _onSource(_: IRunSource, change: SourceChange): void {
    if (change.kind === 'hello') {
      this._config = this.source.hello?.config ?? this._config;
      this._changed.emit();
    } else if (change.kind === 'configured' && change.message.applied) {
      // Another page's viewer may count its ids as this one does: each of ours is met once.
      if (!this._own.delete(change.message.id)) {
        this._takeForeign(change.message);
      }
    } else if (change.kind === 'status' || change.kind === 'connection') {
      this._changed.emit();
    }
  }

  private _takeForeign(message: Configured): void {
    const flags: Record<string, FlagSetting | null> = {};
    for (const name of new Set([...Object.keys(this._config.flags), ...Object.keys(message.config.flags)])) {
      const next = message.config.flags[name] ?? null;
      if (patchOf(new Map([[name, next]]), this._config) !== null) {
        flags[name] = next;
      }
    }
    this._config = message.config;
    if (Object.keys(flags).length > 0) {
      const who = message.by === undefined ? '' : (message.by.user ?? message.by.name);
      this._foreign = { who, time: message.time ?? null, step: message.step, flags };
    }
    this._changed.emit();
  }

  private _edit(flag: string, setting: FlagSetting | null): void {
    this._draft = new Map(this._draft).set(flag, setting);
    if (this._apply.kind === 'refused' || this._apply.kind === 'applied') {
      this._apply = { kind: 'idle' };
    }
    this._changed.emit();
  }

  private _setApply(state: ApplyState): void {
    if (!this._disposed) {
      this._apply = state;
      this._changed.emit();
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _own = new Set<string>();
  private readonly _last = new Map<string, FlagSetting>();
  private _config: Config;
  private _draft: Draft = new Map();
  private _apply: ApplyState = { kind: 'idle' };
  private _foreign: IForeignChange | null = null;
  private _disposed = false;
}
