import { fullViewOptions } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';

const METHODS = {
  heatmap: 'heatmap',
  trend: 'trend',
  scalars: 'scalars_view',
  history: 'history',
  moments: 'explore'
} as const;

/** Write a JSON value as a Python literal. */
export function python(value: unknown): string {
  if (value === null || value === undefined) {
    return 'None';
  }
  if (typeof value === 'boolean') {
    return value ? 'True' : 'False';
  }
  if (Array.isArray(value)) {
    return `[${value.map(python).join(', ')}]`;
  }
  if (typeof value === 'object') {
    const members = Object.entries(value).map(([name, each]) => `${python(name)}: ${python(each)}`);
    return `{${members.join(', ')}}`;
  }
  return JSON.stringify(value);
}

/**
 * Write a view as the Python call that makes it, such as `run.heatmap("MLP1_mat_mul", layers="1-4", step=1240)`.
 * Options at their default are left out; `pass` is `pass_`, since Python keeps the word for itself.
 *
 * @param run Name of the variable that holds the run.
 */
export function toCode(options: ViewOptions, run = 'run'): string {
  const bare = 'flag' in options ? { view: options.view, flag: options.flag } : { view: options.view };
  const defaults: Record<string, unknown> = { ...fullViewOptions(bare) };
  const named = Object.entries(options)
    .filter(([name, value]) => name !== 'view' && name !== 'flag' && value !== undefined)
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(defaults[name]))
    .map(([name, value]) => `${name === 'pass' ? 'pass_' : name}=${python(value)}`);
  const flag = 'flag' in options ? [python(options.flag)] : [];
  return `${run}.${METHODS[options.view]}(${[...flag, ...named].join(', ')})`;
}
