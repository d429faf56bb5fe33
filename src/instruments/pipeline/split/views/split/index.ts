import type { SplitOptions } from '../../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../../views/shared/definition';
import { SplitView } from './split-view';

export const view: IViewDefinition<SplitOptions> = {
  compose: (source, env) => new SplitView(source, env)
};
