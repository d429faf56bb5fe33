import type { FlagInfo, FlagSetting, Hello } from '../../protocol/messages.generated';
import { EMBEDDING, rangesText } from '../../protocol/ranges';
import { firstSetting, isAvailable } from '../../views/shared/forecast';
import type { Draft } from './draft';

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
    title: 'Hidden states of all layers, cheap',
    takes: ({ name }) => name === 'HiddenStates',
    layers: all,
    every: 10
  },
  {
    title: 'Attention of the middle layers, cheap',
    takes: ({ axes }) => axes.includes('key'),
    layers: middle,
    every: 10
  },
  {
    title: 'MLPs of the middle layers',
    takes: ({ name }) => name.startsWith('MLP'),
    layers: middle,
    every: 1
  },
  { title: 'All that there is, rarely', takes: () => true, layers: all, every: 100 }
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
