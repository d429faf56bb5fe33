import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import type { ITraced } from './facts';

/** A trace point that carries texts, and is no picture of its own. */
const TOKENS = 'InputTokens';
/** A heatmap shows all layers where there are not more. */
const MOST_LAYERS = 9;

/** Return the views of a report that nobody chose: scalars and statistics where there are some, trend and heatmap of the first traced flag. */
export async function defaultViews(run: IRunSource, traced: readonly ITraced[]): Promise<ViewOptions[]> {
  const index = await run.moments?.index();
  const logged = index?.stats.some(({ rows }) => rows > 0) ?? false;
  const scalars = await run.scalars();
  const flags = run.hello?.flags ?? [];
  const has = new Set(traced.map(({ flag }) => flag).filter(flag => flag !== TOKENS));
  const first = flags.find(({ name }) => has.has(name)) ?? [...has].map(name => ({ name, layers: [] }))[0];
  const layers = first?.layers ?? [];
  return [
    ...(logged && scalars.step.length === 0 ? [] : [{ view: 'scalars' } as const]),
    ...(logged ? [{ view: 'moments' } as const] : []),
    ...(first === undefined
      ? []
      : [
          { view: 'trend', flag: first.name } as const,
          {
            view: 'heatmap',
            flag: first.name,
            layers: layers.length <= MOST_LAYERS ? 'all' : String(layers[0])
          } as const
        ])
  ];
}
