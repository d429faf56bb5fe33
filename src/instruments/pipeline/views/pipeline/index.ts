import type { PipelineOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { PipelineView } from './pipeline-view';

export const view: IViewDefinition<PipelineOptions> = {
  compose: (source, env) => new PipelineView(source, env)
};
