import type { ViewOptions } from '../protocol/views.generated';
import { LOADERS } from './loaders.generated';
import type { IViewDefinition } from './shared/definition';

/** Load what a view is made of: its definition, which needs no page. */
export async function loadView(name: ViewOptions['view']): Promise<{ view: IViewDefinition }> {
  // Whoever knows a view by its name has options of that view: the cast says that the two go together.
  return (await LOADERS[name]()) as { view: IViewDefinition };
}
