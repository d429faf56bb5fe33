import type { LensOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { LensView } from './lens-view';

export const view: IViewDefinition<LensOptions> = { create: (source, env) => new LensView(source, env) };
