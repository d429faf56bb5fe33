import { reportViews } from '../protocol/view-info';
import type { ViewOptions } from '../protocol/views.generated';
import { readGenerations } from '../instruments/generation/store/generations';
import type { IRunSource } from '../store/source';
import type { ITraced } from './facts';

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
  const alarms = await run.table('alarms').catch(() => null);
  const timeline = await run.timeline?.({ ranks: '0', columns: 1 }).catch(() => null);
  // A plan says something of a run that is a pipeline.
  const steps = timeline ? await run.pipeline?.({}).catch(() => null) : null;
  const isPipeline = (steps?.stages ?? 0) > 1;
  const written = await readGenerations(run).catch(() => []);
  const counts = {
    tokens: written.length > 0,
    lens: written.some(({ request }) => (request?.lens ?? 0) > 0),
    effects: written.some(({ control }) => control > 0),
    alarms: (alarms?.length ?? 0) > 0,
    spans: Boolean(timeline),
    moments: logged,
    scalars: !logged || scalars.step.length > 0
  };
  const views = reportViews(
    stream => counts[stream as keyof typeof counts] ?? true,
    first === undefined ? [] : [first.name],
    run.hello?.phase
  );
  if (isPipeline) {
    views.push({ view: 'pipeline', schedule: 'measured' });
  }
  return layers.length <= MOST_LAYERS
    ? views
    : views.map(view =>
        'layers' in view && view.layers === 'all' ? { ...view, layers: String(layers[0]) } : view
      );
}
