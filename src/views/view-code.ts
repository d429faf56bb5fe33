import type { ViewOptions } from '../protocol/views.generated';
import type { IViewDefinition } from './shared/definition';

/** The code of each view. */
export const VIEW_CODE = {
  heatmap: () => import('./heatmap'),
  trend: () => import('./trend'),
  scalars: () => import('./scalars'),
  history: () => import('./history'),
  moments: () => import('./moments')
} as const;

/** Load what a view is made of: its definition, which needs no page. */
export async function loadView(name: ViewOptions['view']): Promise<{ view: IViewDefinition }> {
  // Whoever knows a view by its name has options of that view: the cast says that the two go together.
  return (await VIEW_CODE[name]()) as { view: IViewDefinition };
}
