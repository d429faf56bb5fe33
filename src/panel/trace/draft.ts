import type { CompressorSetting, Config, ConfigPatch, FlagSetting } from '../../protocol/messages.generated';
import { ProtocolError } from '../../protocol/protocol-error';
import { own } from '../../protocol/records';

/** Where a change that was asked for stands. */
export type ApplyState =
  | { kind: 'idle' }
  /** Sent, the hub has not answered. */
  | { kind: 'sent' }
  /** Accepted; it takes effect at this step or after. */
  | { kind: 'accepted'; step: number }
  | { kind: 'applied'; step: number }
  /** Refused; `field` is the hub's dotted path. */
  | { kind: 'refused'; message: string; field: string | null; column: number | null };

/** What is wrong at a field: in words, and the column inside an expression. */
export interface IFault {
  readonly message: string;
  readonly column: number | null;
  /** The right value that is nearest to what is written. */
  readonly nearest?: string;
}

/** Read an error as the state of the change that it answers. */
export function refusalOf(error: unknown): Extract<ApplyState, { kind: 'refused' }> {
  const fault = error instanceof ProtocolError ? error : null;
  return {
    kind: 'refused',
    message: error instanceof Error ? error.message : String(error),
    field: fault?.field?.replace(/^patch\./, '') ?? null,
    column: fault?.column ?? null
  };
}

/** What a refusal says about one object, by the field within it; the object itself is the empty name. */
export function faultsIn(state: ApplyState, path: string): ReadonlyMap<string, IFault> {
  const field = state.kind === 'refused' ? state.field : null;
  if (state.kind !== 'refused' || field === null || !(field === path || field.startsWith(`${path}.`))) {
    return new Map();
  }
  const { message, column } = state;
  return new Map([[field.slice(path.length + 1), { message, column }]]);
}

export function isUnderWay(state: ApplyState): boolean {
  return state.kind === 'sent' || state.kind === 'accepted';
}

/** A setting with every member written out, as the form edits it. */
export interface IFullSetting {
  layers: string;
  every: number;
  samples: number | null;
  phases: NonNullable<FlagSetting['phases']>;
  passes: NonNullable<FlagSetting['passes']>;
  replicas: NonNullable<FlagSetting['replicas']>;
  compressor: CompressorSetting;
}

/** Settings being edited: a flag that is not there is as it is in force. */
export type Draft = ReadonlyMap<string, FlagSetting | null>;

export function fullSetting(setting: FlagSetting): IFullSetting {
  return {
    layers: setting.layers ?? 'all',
    every: setting.every ?? 1,
    samples: setting.samples === undefined ? 1 : setting.samples,
    phases: setting.phases ?? ['train'],
    passes: setting.passes ?? ['forward'],
    replicas: setting.replicas ?? 'first',
    compressor: { name: setting.compressor.name, params: { ...setting.compressor.params } }
  };
}

/** The setting that a flag would have after Apply; null is off. */
export function effective(flag: string, draft: Draft, config: Config): FlagSetting | null {
  const edited = draft.get(flag);
  return edited !== undefined ? edited : (own(config.flags, flag) ?? null);
}

/** The patch that brings the configuration in force to the draft; null when they are the same. */
export function patchOf(draft: Draft, config: Config): ConfigPatch | null {
  const changed = [...draft].filter(
    ([flag, setting]) => !sameSetting(setting, own(config.flags, flag) ?? null)
  );
  return changed.length > 0 ? { flags: Object.fromEntries(changed) } : null;
}

export function sameSetting(a: FlagSetting | null, b: FlagSetting | null): boolean {
  return a === null || b === null ? a === b : canonical(a) === canonical(b);
}

function canonical(setting: FlagSetting): string {
  const full = fullSetting(setting);
  const params = Object.entries(full.compressor.params ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([
    full.layers,
    full.every,
    full.samples,
    [...full.phases].sort(),
    [...full.passes].sort(),
    full.replicas,
    full.compressor.name,
    params
  ]);
}
