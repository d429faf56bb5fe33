import type { HeatmapOptions } from '../../protocol/views.generated';
import type { IViewDefinition } from '../shared/definition';
import { HeatmapView } from './heatmap-view';

export const view: IViewDefinition<HeatmapOptions> = {
  create: (source, env) => new HeatmapView(source, env)
};
