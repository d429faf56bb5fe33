import type { HistoryOptions } from '../../protocol/views.generated';
import type { IViewDefinition } from '../shared/definition';
import { HistoryView } from './history-view';

export const view: IViewDefinition<HistoryOptions> = {
  compose: (source, env) => new HistoryView(source, env)
};
