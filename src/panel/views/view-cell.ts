import type { ViewOptions } from '../../protocol/views.generated';
import { openingOf, toCode, type IOpened } from '../../views/code';
import type { KernelRun } from './kernel-run';

/**
 * Code of a cell that shows a view. It opens the view's own run, unless the kernel's `run` is known to be it;
 * a `run` that is, or may be, something else is left alone.
 * @param held - What the notebook has as `run`.
 */
export function viewCell(entry: IOpened, options: ViewOptions, kernelRun: KernelRun): string {
  if (kernelRun.kind === 'run' && kernelRun.id === entry.id) {
    return toCode(options);
  }
  const opening = openingOf(entry);
  return kernelRun.kind === 'free'
    ? `import megalens\n\nrun = ${opening}\n${toCode(options)}`
    : `import megalens\n\n${toCode(options, opening)}`;
}
