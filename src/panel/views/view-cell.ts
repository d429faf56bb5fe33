import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunEntry } from '../../tokens';
import { openingCode, toCode } from '../../views/code';
import { runCode } from '../shell/panel-code';

/** The last thing that a notebook assigned to `run`, such as `megalens.connect("gpt-demo")`. */
const ASSIGNED = /^[ \t]*run[ \t]*=([^#\n]*)/gm;

/**
 * Code of a cell that shows a view: the view's own call, and before it whatever the notebook still lacks to get hold of the run. A `run` that
 * the notebook has for something else is left alone.
 *
 * @param entry - The view's run.
 * @param newest - Id of the newest live run, which `megalens.connect()` means.
 * @param cells - Sources of the notebook's code cells, in order.
 */
export function viewCell(
  entry: IRunEntry,
  options: ViewOptions,
  newest: string | null,
  cells: readonly string[]
): string {
  const getting = runCode(entry);
  const held = cells
    .flatMap(source => [...source.matchAll(ASSIGNED)].map(match => (match[1] ?? '').trim()))
    .pop();
  const same = [
    getting.slice('run = '.length),
    openingCode(entry.id, null),
    openingCode(entry.name, null),
    ...(newest === entry.id ? ['megalens.connect()'] : [])
  ];
  if (held !== undefined && same.includes(held.replaceAll("'", '"'))) {
    return toCode(options);
  }
  return held === undefined
    ? `import megalens\n\n${getting}\n${toCode(options)}`
    : `import megalens\n\n${toCode(options, getting.slice('run = '.length))}`;
}
