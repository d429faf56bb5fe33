import type { MomentsOptions } from '../../protocol/views.generated';
import type { IViewDefinition } from '../shared/definition';
import { MomentsView } from './moments-view';

export const view: IViewDefinition<MomentsOptions> = {
  compose: (source, env) => new MomentsView(source, env)
};
