import type { ViewOptions } from '../protocol/views.generated';
import { LOADERS } from './loaders.generated';
import { loadOther, type ViewCode } from './other-views';

/** Load the code of a view, of this package or of another one. */
export async function loadView(name: ViewOptions['view']): Promise<ViewCode> {
  // Whoever knows a view by its name has options of that view: the cast says that the two go together.
  return (await (loadOther(name) ?? LOADERS[name])()) as ViewCode;
}
