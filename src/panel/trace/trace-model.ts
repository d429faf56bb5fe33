import { translatedLater } from '../../protocol/texts';
import type {
  Config,
  ConfigPatch,
  Configured,
  FlagInfo,
  FlagSetting,
  Hello,
  Peer,
  Status
} from '../../protocol/messages.generated';
import { own, withOwn } from '../../protocol/records';
import { takesChanges, type IRunSource, type SourceChange } from '../../store/source';
import {
  FRAME_BYTES,
  compressorWithDefaults,
  estimateBytes,
  firstSetting,
  isAvailable,
  positionsOf
} from '../../views/shared/forecast';
import { layersFault } from '../../views/shared/layers';
import { SourceModel } from '../shell/source-model';
import {
  effective,
  faultsIn,
  fullSetting,
  isUnderWay,
  patchOf,
  refusalOf,
  type ApplyState,
  type Draft,
  type IFault,
  type IFullSetting
} from './draft';
import { isFlood, stepsHeld } from './estimate';
import { EMBEDDING, rangesText } from '../../protocol/ranges';

/** Settings that other viewers changed since it was last noted. */
export interface IForeignChange {
  /** Who made the last change, where that is known. */
  readonly by: Peer | null;
  /** Seconds since the epoch. */
  readonly time: number | null;
  readonly step: number;
  /** How many changes there were. */
  readonly count: number;
  /** Flags that differ, with their new setting; null is off. */
  readonly flags: Readonly<Record<string, FlagSetting | null>>;
}

export interface IFlagRow {
  readonly info: FlagInfo;
  readonly available: boolean;
  /** Setting after Apply, null when off. */
  readonly setting: IFullSetting | null;
  readonly edited: boolean;
  /** Faults of this flag by field within it: what is seen while typing, or what the hub found. */
  readonly faults: ReadonlyMap<string, IFault>;
}

/** Steps that the measured size of a step is the mean of. */
const MEAN_STEPS = 33;

/**
 * What a run traces, and the changes being written.
 *
 * Everything that can be picked comes from `hello`. Edits gather in a draft; `apply` sends only what differs
 * from the configuration in force, so that two viewers do not undo each other.
 */
export class TraceModel extends SourceModel {
  constructor(source: IRunSource) {
    super(source);
    this._config = source.hello?.config ?? { flags: {} };
  }

  get hello(): Hello | null {
    return this.source.hello;
  }

  get config(): Config {
    return this._config;
  }

  get apply(): ApplyState {
    return this._apply;
  }

  /** What others changed, until dismissed. */
  get foreign(): IForeignChange | null {
    return this._foreign;
  }

  /** Whether there is something to apply. */
  get dirty(): boolean {
    return patchOf(this._draft, this._config) !== null;
  }

  /** Whether the run takes changes now. */
  get writable(): boolean {
    return takesChanges(this.source);
  }

  /** Whether anything is traced now. */
  get tracing(): boolean {
    return Object.keys(this._config.flags).length > 0;
  }

  /** One row per flag of hello, in its order. */
  get rows(): readonly IFlagRow[] {
    return (this.hello?.flags ?? []).map(info => {
      const setting = effective(info.name, this._draft, this._config);
      return {
        info,
        available: isAvailable(info),
        setting: setting === null ? null : fullSetting(setting),
        edited: patchOf(new Map([[info.name, setting]]), this._config) !== null,
        faults: this._faults(info, setting)
      };
    });
  }

  /** Whether what is written cannot be applied: a row says why. */
  get isWrong(): boolean {
    return this.rows.some(
      ({ info, setting }) => setting !== null && layersFault(setting.layers, info.layers) !== null
    );
  }

  /** Choices of several flags, each with the bytes that a step would send. */
  get presets(): readonly (IPreset & { readonly bytes: number; readonly complete: boolean })[] {
    const scale = this._measured() ?? 1;
    return (this.hello === null ? [] : presetsOf(this.hello)).map(preset => {
      const { bytes, complete } = this._sized(preset.draft);
      return { ...preset, bytes: bytes * scale, complete };
    });
  }

  /** Edit every flag as a preset has it. */
  take({ draft }: IPreset): void {
    draft.forEach((setting, flag) => this._edit(flag, setting));
  }

  private _faults(info: FlagInfo, setting: FlagSetting | null): ReadonlyMap<string, IFault> {
    const found = faultsIn(this._apply, `flags.${info.name}`);
    const typed = setting === null ? null : layersFault(setting.layers ?? 'all', info.layers);
    return typed === null ? found : new Map([...found, ['layers', { ...typed, column: null }]]);
  }

  get replicas(): number {
    return this.hello?.layout?.dp ?? 1;
  }

  /**
   * Bytes per step that the draft is expected to send; `complete` is false if a flag's size is unknown. What
   * is measured of the settings in force says by how much more a step sends than one micro-batch would.
   */
  get estimate(): { bytes: number; complete: boolean } {
    const settings = this.rows.map(({ info, setting }) => [info.name, setting] as const);
    const { bytes, complete } = this._sized(new Map(settings));
    return { bytes: bytes * (this._measured() ?? 1), complete };
  }

  /** Whether the draft sends so much that it should be asked first, and for how many steps a bound lasts. */
  get flood(): { isFlood: boolean; held: number | null } {
    const { bytes } = this.estimate;
    const held = stepsHeld(bytes, this.source.status ?? {});
    return { isFlood: this.dirty && isFlood(bytes, held), held };
  }

  /** Whether a step is forecast: before anything was measured it is a micro-batch. */
  get isOfStep(): boolean {
    return this._measured() !== null;
  }

  /** Percent of the training's time that tracing takes with the settings in force. */
  get share(): number | undefined {
    return this.source.status?.overhead?.percent;
  }

  /** Seconds of a step, of the steps since this was shown; null before there are some. */
  get pace(): number | null {
    const { step = 0, time = 0 } = this.source.status ?? {};
    const steps = step - (this._since?.step ?? step);
    return this._since === null || steps < FEWEST ? null : (time - this._since.time) / steps;
  }

  /**
   * By how much more a step sends than is expected of one micro-batch; as it was while settings are new.
   * Before anything was measured it is how many the run has counted; null where it has not.
   */
  private _measured(): number | null {
    const { status } = this.source;
    const measured = status?.bytes_per_step ?? 0;
    const apply = this._apply;
    const isOld = apply.kind === 'applied' && (status?.step ?? 0) < apply.step + MEAN_STEPS;
    if (measured > 0 && !isOld) {
      const flags = Object.values(this._config.flags);
      const now = this._sized(new Map(Object.entries(this._config.flags)));
      // What is measured is of steps that send something.
      const every = Math.min(...flags.map(setting => setting.every ?? 1));
      this._scale = now.complete && now.bytes > 0 ? measured / every / now.bytes : this._scale;
    }
    return this._scale ?? status?.micro_batches ?? null;
  }

  private _sized(settings: ReadonlyMap<string, FlagSetting | null>): { bytes: number; complete: boolean } {
    let [bytes, often, complete] = [0, 0, true];
    const flags = this.hello?.flags ?? [];
    const positions = positionsOf(flags);
    for (const info of flags) {
      const setting = settings.get(info.name) ?? null;
      if (setting !== null) {
        const size = estimateBytes(info, setting, positions, this.replicas);
        bytes += size ?? 0;
        often = Math.max(often, size === null ? 0 : 1 / (setting.every ?? 1));
        complete &&= size !== null;
      }
    }
    return { bytes: bytes + often * FRAME_BYTES, complete };
  }

  /** What is in force with its expected bytes per step, largest first; null while that is unknown. */
  get costs(): readonly { name: string; title: string; bytes: number | null }[] {
    const flags = this.hello?.flags ?? [];
    const positions = positionsOf(flags);
    const scale = this._measured() ?? 1;
    return Object.entries(this._config.flags)
      .map(([flag, setting]) => {
        const info = flags.find(({ name }) => name === flag);
        const bytes = info ? estimateBytes(info, setting, positions, this.replicas) : null;
        return { name: flag, title: info?.title ?? flag, bytes: bytes === null ? null : bytes * scale };
      })
      .sort((a, b) => (b.bytes ?? -1) - (a.bytes ?? -1));
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
      this._last.get(flag) ??
      own(this._config.flags, flag) ??
      firstSetting(this._infoOf(flag), this.hello?.compressors ?? [], this.hello?.phase);
    if (setting !== null) {
      this._edit(flag, setting);
    }
  }

  change(flag: string, members: Partial<FlagSetting>): void {
    const now = effective(flag, this._draft, this._config);
    if (now !== null) {
      this._edit(flag, { ...now, ...members });
    }
  }

  /** Choose a flag's compressor, with parameters that suit the flag, or else hello's defaults. */
  chooseCompressor(flag: string, name: string): void {
    const suited = this._infoOf(flag)?.compressor;
    const info = this.hello?.compressors.find(candidate => candidate.name === name);
    if (suited?.name === name) {
      this.change(flag, { compressor: suited });
    } else if (info !== undefined) {
      this.change(flag, { compressor: compressorWithDefaults(info) });
    }
  }

  private _infoOf(flag: string): FlagInfo | undefined {
    return this.hello?.flags.find(({ name }) => name === flag);
  }

  /** Change one parameter of a flag's compressor; undefined leaves it out. */
  changeParameter(flag: string, name: string, value: unknown): void {
    const compressor = effective(flag, this._draft, this._config)?.compressor;
    if (compressor !== undefined) {
      const params = withOwn<unknown>(compressor.params ?? {}, name, value);
      this.change(flag, { compressor: { name: compressor.name, params } });
    }
  }

  revert(): void {
    this._draft = new Map();
    this._apply = { kind: 'idle' };
    this.emit();
  }

  /** Send the edits. Never rejects: what came of it is in `apply`. */
  async submit(): Promise<void> {
    const patch = patchOf(this._draft, this._config);
    if (patch === null || isUnderWay(this._apply) || this.isWrong) {
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
      if (this._before !== null) {
        // What others changed is reported without what was changed here.
        this._before = merged(this._before, patch);
      }
      // Edits made while it was under way stay.
      this._draft = new Map([...this._draft].filter(([flag, setting]) => sent.get(flag) !== setting));
      this._setApply({ kind: 'applied', step: applied.step });
    } catch (error) {
      this._setApply(refusalOf(error));
    }
  }

  /** Stop showing what another viewer changed. */
  dismissForeign(): void {
    this._foreign = null;
    this._before = null;
    this.emit();
  }

  protected heard(change: SourceChange): void {
    if (change.kind === 'hello') {
      this._config = this.source.hello?.config ?? this._config;
      this.gate.note();
    } else if (change.kind === 'configured' && change.message.applied) {
      // Another page's viewer may count its ids as this one does: each of ours is met once.
      if (!this._own.delete(change.message.id)) {
        this._takeForeign(change.message);
      }
    } else if (change.kind === 'status' || change.kind === 'connection') {
      this._since = sinceOf(this.source.status, this._since);
      this.gate.note();
    }
  }

  private _takeForeign(message: Configured): void {
    const before = this._before ?? this._config;
    const flags = differences(before, message.config);
    if (Object.keys(differences(this._config, message.config)).length > 0) {
      const count = (this._foreign?.count ?? 0) + 1;
      this._foreign = {
        by: message.by ?? null,
        time: message.time ?? null,
        step: message.step,
        count,
        flags
      };
      this._before = before;
    }
    this._config = message.config;
    this.gate.note();
  }

  private _edit(flag: string, setting: FlagSetting | null): void {
    this._draft = new Map(this._draft).set(flag, setting);
    if (this._apply.kind === 'refused' || this._apply.kind === 'applied') {
      this._apply = { kind: 'idle' };
    }
    this.emit();
  }

  private _setApply(state: ApplyState): void {
    if (!this.isDisposed) {
      this._apply = state;
      this.emit();
    }
  }

  private readonly _own = new Set<string>();
  private readonly _last = new Map<string, FlagSetting>();
  /** The first step that was heard of, and when. */
  private _since: ISince | null = sinceOf(this.source.status, null);
  private _scale: number | null = null;
  private _config: Config;
  private _draft: Draft = new Map();
  private _apply: ApplyState = { kind: 'idle' };
  private _foreign: IForeignChange | null = null;
  // What was in force when the first change that is reported was made.
  private _before: Config | null = null;
}

/** Steps that the time of one is a mean of at least. */
const FEWEST = 5;

interface ISince {
  readonly step: number;
  readonly time: number;
}

/** Since when the time of a step is a mean: anew where a training goes back. */
function sinceOf(status: Status | null, before: ISince | null): ISince | null {
  const { step, time } = status ?? {};
  return step === undefined || time === undefined || (before !== null && step >= before.step)
    ? before
    : { step, time };
}

/** Flags whose setting differs, with the later one; null is off. */
function differences(before: Config, after: Config): Record<string, FlagSetting | null> {
  const names = new Set([...Object.keys(before.flags), ...Object.keys(after.flags)]);
  return Object.fromEntries(
    [...names].flatMap(name => {
      const next = own(after.flags, name) ?? null;
      return patchOf(new Map([[name, next]]), before) === null ? [] : [[name, next]];
    })
  );
}

/** A configuration with a patch's flags. */
function merged(config: Config, patch: ConfigPatch): Config {
  const flags = Object.entries(patch.flags).reduce(
    (all, [name, setting]) => withOwn(all, name, setting ?? undefined),
    config.flags
  );
  return { ...config, flags };
}

/** Flags and settings that are chosen together. */
export interface IPreset {
  readonly title: string;
  /** A setting for every flag of the run; null is off. */
  readonly draft: Draft;
}

/** Layers of the middle third. */
const middle = (layers: readonly number[]): string =>
  rangesText(layers.slice(Math.floor(layers.length / 3), Math.ceil((2 * layers.length) / 3)));

const all = (): string => 'all';

/** What people ask of a run first. Those that it has no flags for are left out. */
const PRESETS: readonly {
  title: string;
  takes: (info: FlagInfo) => boolean;
  layers: (existing: readonly number[]) => string;
  every: number;
}[] = [
  {
    title: translatedLater('Hidden states of all layers, cheap'),
    takes: ({ name }) => name === 'HiddenStates',
    layers: all,
    every: 10
  },
  {
    title: translatedLater('Attention of the middle layers, cheap'),
    takes: ({ axes }) => axes.includes('key'),
    layers: middle,
    every: 10
  },
  {
    title: translatedLater('MLPs of the middle layers'),
    takes: ({ name }) => name.startsWith('MLP'),
    layers: middle,
    every: 1
  },
  { title: translatedLater('All that there is, rarely'), takes: () => true, layers: all, every: 100 }
];

export function presetsOf({ flags, compressors, phase }: Hello): readonly IPreset[] {
  const presets = PRESETS.map(({ title, takes, layers, every }): IPreset => {
    const settingOf = (info: FlagInfo): FlagSetting | null => {
      const first = isAvailable(info) && takes(info) ? firstSetting(info, compressors, phase) : null;
      const there = info.layers.filter(layer => layer !== EMBEDDING);
      return first && { ...first, layers: there.length === 0 ? 'all' : layers(there), every };
    };
    return { title, draft: new Map(flags.map(info => [info.name, settingOf(info)])) };
  });
  return presets.filter(({ draft }) => [...draft.values()].some(setting => setting !== null));
}
