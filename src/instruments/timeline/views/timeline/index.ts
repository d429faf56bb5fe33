import type { TimelineOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { TimelineView } from './timeline-view';

export const view: IViewDefinition<TimelineOptions> = {
  create: (source, env) => new TimelineView(source, env)
};
