import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { AttentionView } from './attention-view';

export const view: IViewDefinition<AttentionOptions> = {
  create: (source, env) => new AttentionView(source, env)
};
