import type { ViewOptions } from '../protocol/views.generated';
import { loadView } from './view-code';

/**
 * Begin to load all that a view is made of and drawn with, in one round of requests: a part that names the
 * next one would be waited for first. What does not load now is told when the view needs it.
 */
export function fetchView(name: ViewOptions['view']): void {
  const parts: readonly Promise<unknown>[] = [
    loadView(name),
    import('./mount'),
    import('../charts/vega').then(({ loadVega }) => loadVega())
  ];
  parts.forEach(part => void part.catch(() => undefined));
}
