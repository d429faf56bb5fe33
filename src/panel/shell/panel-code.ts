import type {
  CompressorInfo,
  CompressorSetting,
  Config,
  FlagSetting
} from '../../protocol/messages.generated';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunEntry } from '../../tokens';
import { openingOf, python, pythonCall, toCode, writtenCall } from '../../views/code';
import { fullSetting, sameSetting } from '../trace/draft';

/** Compressors that are classes of the package; others are written as settings: a hub's name is no code. */
const CLASSES: ReadonlySet<string> = new Set(['Tile', 'NoOp', 'Empty', 'Projection', 'Peaks', 'Histogram']);

export const runCode = (entry: IRunEntry): string => `run = ${openingOf(entry)}`;

/** Python that does in a notebook cell what the panel shows: the run, its settings, its open views. */
export function panelCode(
  entry: IRunEntry,
  config: Config,
  views: readonly ViewOptions[],
  compressors: readonly CompressorInfo[]
): string {
  const lines = ['import megalens'];
  const used = new Set(Object.values(config.flags).map(setting => setting.compressor.name));
  const names = compressors.map(info => info.name).filter(name => used.has(name) && CLASSES.has(name));
  if (entry.state === 'live' && names.length > 0) {
    lines.push(`from megalens import ${names.join(', ')}`);
  }
  lines.push('', runCode(entry));
  if (entry.state === 'live') {
    lines.push(...configureCode(config), ...controlCode(config));
  }
  lines.push(...views.map(view => toCode(view)));
  return lines.join('\n') + '\n';
}

/** One `run.configure` per group of flags that share everything but the compressor. */
function configureCode(config: Config): string[] {
  const groups: { setting: FlagSetting; flags: [string, FlagSetting][] }[] = [];
  for (const [flag, setting] of Object.entries(config.flags)) {
    const plain: FlagSetting = { ...setting, compressor: { name: 'any' } };
    const group = groups.find(candidate => sameSetting(candidate.setting, plain));
    if (group) {
      group.flags.push([flag, setting]);
    } else {
      groups.push({ setting: plain, flags: [[flag, setting]] });
    }
  }
  return groups.map(({ setting, flags }) => {
    const { layers, every, samples, phases, passes, replicas } = fullSetting(setting);
    const words: [string, string][] = [
      ...flags.map(([flag, { compressor }]): [string, string] => [flag, compressorCode(compressor)]),
      ...(
        [
          ['layers', layers, layers === 'all'],
          ['every', every, every === 1],
          ['samples', samples ?? 'all', samples === 1],
          ['phases', phases, phases.join() === 'train'],
          ['passes', passes, passes.join() === 'forward'],
          ['replicas', replicas, replicas === 'first']
        ] as const
      ).flatMap(([name, value, usual]): [string, string][] => (usual ? [] : [[name, python(value)]]))
    ];
    return writtenCall('run.configure', [], words);
  });
}

function compressorCode({ name, params = {} }: CompressorSetting): string {
  return CLASSES.has(name)
    ? pythonCall(name, [], Object.entries(params))
    : python({ compressor: { name, params } });
}

/** Settings in force beyond what is traced, without a pause: code run twice must not stop a training. */
function controlCode({ perturb, budget }: Config): string[] {
  const lines: string[] = [];
  if (perturb !== undefined) {
    const { sites, seed, steps } = perturb;
    const named = Object.entries({ seed, steps }).filter(([, value]) => value !== undefined);
    lines.push(pythonCall('run.perturb', [sites], named));
  }
  if (budget !== undefined && budget !== null) {
    lines.push(pythonCall('run.budget', [`${budget}%`]));
  }
  return lines;
}
