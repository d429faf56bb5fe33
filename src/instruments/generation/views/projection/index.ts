import type { ProjectionOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { ProjectionView } from './projection-view';

export const view: IViewDefinition<ProjectionOptions> = {
  compose: (source, env) => new ProjectionView(source, env)
};
