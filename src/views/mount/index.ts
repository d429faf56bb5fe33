import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { IViewDefinition } from '../shared/definition';
import type { IView, IViewHost } from '../view';
import { MountedComposition } from './mounted-composition';
import { MountedView } from './mounted-view';

/** Put a view into an empty node, whichever view it is. */
export function mount<O extends ViewOptions>(
  definition: IViewDefinition<O>,
  node: HTMLElement,
  source: IRunSource,
  options: Required<O>,
  host: IViewHost = {}
): IView<O> {
  return 'create' in definition
    ? new MountedView(node, source, options, host, definition.create)
    : new MountedComposition(node, source, options, host, definition.compose);
}
