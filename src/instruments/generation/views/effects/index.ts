import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { EffectsView } from './effects-view';

export const view: IViewDefinition<EffectsOptions> = {
  create: (source, env) => new EffectsView(source, env)
};
