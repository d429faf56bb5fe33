import type { ViewOptions } from '../protocol/views.generated';
import { LOADERS } from './loaders.generated';
import { own } from '../protocol/records';
import { loadOther, type ViewCode } from './other-views';
import { ViewError } from './shared/definition';

/** Load the code of a view, of the core, of an instrument or of another package. */
export async function loadView(name: ViewOptions['view']): Promise<ViewCode> {
  const load = loadOther(name) ?? own<(() => Promise<unknown>) | undefined>(LOADERS, name);
  if (load === undefined) {
    throw new ViewError(`There is no code of a view ${name} here.`);
  }
  // Whoever knows a view by its name has options of that view: the cast says that the two go together.
  return (await load()) as ViewCode;
}
