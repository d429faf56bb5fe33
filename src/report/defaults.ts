import { own } from '../protocol/own';
import { reportViews } from '../protocol/view-info';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import type { ITraced } from './facts';
import { reportParts } from './report-part';

/** A trace point that carries texts, and is no picture of its own. */
const TOKENS = 'InputTokens';
/** A heatmap shows all layers where there are not more. */
const MOST_LAYERS = 9;

/** Return the views of a report that nobody chose: those that `report` of the table of views names, of the first traced flag. */
export async function defaultViews(run: IRunSource, traced: readonly ITraced[]): Promise<ViewOptions[]> {
  const index = await run.moments?.index();
  const logged = index?.stats.some(({ rows }) => rows > 0) ?? false;
  const scalars = await run.scalars();
  const flags = run.hello?.flags ?? [];
  const has = new Set(traced.map(({ flag }) => flag).filter(flag => flag !== TOKENS));
  const first = flags.find(({ name }) => has.has(name)) ?? [...has].map(name => ({ name, layers: [] }))[0];
  const layers = first?.layers ?? [];
  const parts = await reportParts(run);
  const counts: Record<string, boolean> = {
    ...Object.fromEntries(parts.flatMap(part => Object.entries(part.has))),
    moments: logged,
    scalars: !logged || scalars.step.length > 0
  };
  const views = reportViews(
    stream => own(counts, stream) ?? true,
    first === undefined ? [] : [first.name],
    run.hello?.phase
  );
  views.push(...parts.flatMap(part => part.views ?? []));
  return layers.length <= MOST_LAYERS
    ? views
    : views.map(view =>
        'layers' in view && view.layers === 'all' ? { ...view, layers: String(layers[0]) } : view
      );
}
