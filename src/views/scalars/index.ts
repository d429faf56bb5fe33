import type { ScalarsOptions } from '../../protocol/views.generated';
import type { IViewDefinition } from '../shared/definition';
import { ScalarsView } from './scalars-view';

export const view: IViewDefinition<ScalarsOptions> = {
  create: (source, env) => new ScalarsView(source, env)
};
