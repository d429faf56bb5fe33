import { viewInfo } from '../protocol/view-info';
import { viewDefaults } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import { own } from '../protocol/own';

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
 * A view of another package is `run.view("name", …)`. Options at their default are left out; `pass` is `pass_`, since Python keeps the word for itself.
 *
 * @param run Name of the variable that holds the run.
 */
export function toCode(options: ViewOptions, run = 'run'): string {
  const defaults = viewDefaults(options.view);
  const method = viewInfo(options.view)?.method;
  const flag = method !== undefined && 'flag' in options ? [python(options.flag)] : [];
  const named = Object.entries(options)
    .filter(
      ([name, value]) => name !== 'view' && value !== undefined && !(name === 'flag' && flag.length > 0)
    )
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(own(defaults, name)))
    .map(([name, value]) => `${name === 'pass' ? 'pass_' : name}=${python(value)}`);
  const [call, first] = method === undefined ? ['view', [python(options.view)]] : [method, flag];
  return `${run}.${call}(${[...first, ...named].join(', ')})`;
}
