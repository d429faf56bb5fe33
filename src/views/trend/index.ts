import type { TrendOptions } from '../../protocol/views.generated';
import type { IViewDefinition } from '../shared/definition';
import { TrendView } from './trend-view';

export const view: IViewDefinition<TrendOptions> = { create: (source, env) => new TrendView(source, env) };
