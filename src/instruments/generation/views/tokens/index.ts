import type { TokensOptions } from '../../../../protocol/views.generated';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { TokensView } from './tokens-view';

export const view: IViewDefinition<TokensOptions> = {
  compose: (source, env) => new TokensView(source, env)
};
