import type { CompressorInfo, Config, FlagSetting } from '../../protocol/messages.generated';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunEntry } from '../../tokens';
import { python, toCode } from '../../views/code';
import { fullSetting, sameSetting } from '../trace/draft';

/** The Python line that gets hold of a run. */
export function runCode(entry: IRunEntry): string {
  return entry.state === 'live' || entry.folder === null
    ? `run = megalens.connect(${python(entry.id)})`
    : `run = megalens.open(${python(entry.folder)})`;
}

/**
 * Python that does in a notebook cell what the panel shows: the run, its settings, its open views.
 *
 * @param entry - the chosen run
 * @param config - the configuration in force
 * @param views - options of the open views
 * @param compressors - those of hello, for the import line
 */
export function panelCode(
  entry: IRunEntry,
  config: Config,
  views: readonly ViewOptions[],
  compressors: readonly CompressorInfo[]
): string {
  const lines = ['import megalens'];
  const used = new Set(Object.values(config.flags).map(setting => setting.compressor.name));
  const names = compressors.map(info => info.name).filter(name => used.has(name));
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
    const words = [
      ...flags.map(
        ([flag, { compressor }]) => `${flag}=${callCode(compressor.name, compressor.params ?? {})}`
      ),
      ...(layers === 'all' ? [] : [`layers=${python(layers)}`]),
      ...(every === 1 ? [] : [`every=${every}`]),
      ...(samples === 1 ? [] : [`samples=${python(samples ?? 'all')}`]),
      ...(phases.join() === 'train' ? [] : [`phases=${python(phases)}`]),
      ...(passes.join() === 'forward' ? [] : [`passes=${python(passes)}`]),
      ...(replicas === 'first' ? [] : [`replicas=${python(replicas)}`])
    ];
    return `run.configure(${words.join(', ')})`;
  });
}

function callCode(name: string, params: Record<string, unknown>): string {
  const words = Object.entries(params).map(([key, value]) => `${key}=${python(value)}`);
  return `${name}(${words.join(', ')})`;
}

/** What is in force beyond what is traced. A pause is not among it: code that is run again shall not stop a training. */
function controlCode({ perturb, budget }: Config): string[] {
  const lines: string[] = [];
  if (perturb !== undefined) {
    const words = [
      pythonDict(perturb.sites),
      ...(perturb.seed === undefined ? [] : [`seed=${perturb.seed}`]),
      ...(perturb.steps === undefined ? [] : [`steps=${perturb.steps}`])
    ];
    lines.push(`run.perturb(${words.join(', ')})`);
  }
  if (budget !== undefined && budget !== null) {
    lines.push(`run.budget("${budget}%")`);
  }
  return lines;
}

function pythonDict(value: unknown): string {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? `{${Object.entries(value)
        .map(([key, each]) => `${python(key)}: ${pythonDict(each)}`)
        .join(', ')}}`
    : python(value);
}
