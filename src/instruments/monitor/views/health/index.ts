import type { HealthOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { HealthView } from './health-view';

export const view: IViewDefinition<HealthOptions> = {
  compose: (source, env) => new HealthView(source, env)
};
