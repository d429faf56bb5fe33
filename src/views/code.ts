import { viewInfo } from '../protocol/view-info';
import { viewDefaults } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import { own } from '../protocol/records';

/** Words that Python reserves, which name no argument. */
const KEPT = new Set(
  (
    'False None True and as assert async await break class continue def del elif else except finally for ' +
    'from global if import in is lambda nonlocal not or pass raise return try while with yield'
  ).split(' ')
);

/**
 * Write a JSON value as a Python literal, whatever texts hold. Characters that are not seen, or that reverse
 * the text around them, are escaped: code shows what it does.
 */
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
  if (typeof value === 'number' && !Number.isFinite(value)) {
    return Number.isNaN(value) ? 'None' : value > 0 ? '1e999' : '-1e999';
  }
  return JSON.stringify(value).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, letter =>
    Array.from(
      { length: letter.length },
      (_, at) => `\\u${letter.charCodeAt(at).toString(16).padStart(4, '0')}`
    ).join('')
  );
}

/**
 * Write a Python call: the one writer of code with names from outside. What is no name of an argument in
 * Python is passed as a literal.
 *
 * @param callee - What is called; never a text from outside.
 */
export function pythonCall(
  callee: string,
  values: readonly unknown[],
  named: Iterable<readonly [string, unknown]> = []
): string {
  return writtenCall(
    callee,
    values.map(python),
    [...named].map(([name, value]) => [name, python(value)])
  );
}

/** The same of arguments that are written as Python already. */
export function writtenCall(
  callee: string,
  values: readonly string[],
  named: readonly (readonly [string, string])[] = []
): string {
  const isName = (name: string): boolean => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !KEPT.has(name);
  const others = named.filter(([name]) => !isName(name)).map(([name, value]) => `${python(name)}: ${value}`);
  const words = named.filter(([name]) => isName(name)).map(([name, value]) => `${name}=${value}`);
  return `${callee}(${[...values, ...words, ...(others.length > 0 ? [`**{${others.join(', ')}}`] : [])].join(', ')})`;
}

/** The Python expression that opens a run again: a live one by its id, a recorded one by its folder. */
export function openingCode(id: string, folder: string | null): string {
  return folder === null ? pythonCall('megalens.connect', [id]) : pythonCall('megalens.open', [folder]);
}

/** What code opens: an entry of the list of runs. */
export interface IOpened {
  readonly id: string;
  readonly state: string;
  readonly folder: string | null;
}

/**
 * The Python expression that opens a run as it is listed: by its id, by which a kernel finds it wherever its
 * notebook lies. Another folder is given as seen from the server's root.
 */
export function openingOf({ id, state, folder }: IOpened): string {
  return openingCode(id, state === 'live' || folder === `megalens-runs/${id}` ? null : folder);
}

/**
 * Write a view as the Python call that makes it, such as `run.heatmap("MLP1_mat_mul", layers="0-3",
 * step=1240)`. A view of another package is `run.view("name", …)`. Options at their default are left out;
 * `pass` is `pass_`, a Python keyword.
 *
 * @param run Name of the variable that holds the run.
 */
export function toCode(options: ViewOptions, run = 'run'): string {
  const defaults = viewDefaults(options.view);
  const method = viewInfo(options.view)?.method;
  const flag = method !== undefined && 'flag' in options ? [options.flag] : [];
  const named = Object.entries(options)
    .filter(
      ([name, value]) => name !== 'view' && value !== undefined && !(name === 'flag' && flag.length > 0)
    )
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(own(defaults, name)))
    .map(([name, value]): [string, string] => [
      name === 'pass' ? 'pass_' : name,
      method === undefined ? python(value) : written(name, value)
    ]);
  return method === undefined
    ? writtenCall(`${run}.view`, [python(options.view)], named)
    : writtenCall(`${run}.${method}`, flag.map(python), named);
}

/**
 * The value of an option of ours, as its Python argument is written: steps from one to another are a range,
 * whose end Python leaves out.
 */
function written(name: string, value: unknown): string {
  if (name !== 'steps' || !Array.isArray(value)) {
    return python(value);
  }
  const [first, last] = value.map(Number) as [number, number];
  return last < Number.MAX_SAFE_INTEGER ? `range(${first}, ${last + 1})` : `slice(${first}, None)`;
}
