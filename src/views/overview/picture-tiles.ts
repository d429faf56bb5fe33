import { readScalars } from '../../aggregate';
import { formatInteger, formatNumber } from '../../charts';
import type { FlagInfo } from '../../protocol/messages.generated';
import { own } from '../../protocol/records';
import { fullViewOptions, type FullOptionsOf } from '../../protocol/view-options';
import type { StatisticsOptions, TrendOptions } from '../../protocol/views.generated';
import type { MomentStat } from '../../store/row-moments';
import { takesChanges, type IRunSource } from '../../store/source';
import { MapPane } from '../statistics/map-pane';
import { ScalarLines } from '../scalars/scalar-lines';
import type { IBriefFact, Loaded } from '../shared/content';
import { OtherRuns } from '../kits/lines/other-runs';
import { shortName } from '../shared/short-name';
import type { IViewEnvironment } from '../shared/view-model';
import { TrendView } from '../trend/trend-view';
import { robustRange } from '../shared/robust-range';

/** What the map shows first, where there is a choice: what tells most about a training. */
const TELLING: readonly MomentStat[] = ['grad', 'activation', 'residual', 'dgrad', 'param'];
/** Most numbers that stand below the loss. */
const MOST_FACTS = 6;
const MOST_LETTERS = 28;

/** The loss as the view of scalars draws it, and the newest of what else is logged. */
export class ScalarsTile extends ScalarLines {
  protected override readonly leadsWithEvent = true;

  override async load(signal: AbortSignal): Promise<Loaded> {
    const loaded = await super.load(signal);
    if (!('content' in loaded)) {
      return loaded;
    }
    const facts = await this._newest(signal);
    return {
      content: { ...loaded.content, ...(facts.length > 0 ? { brief: { facts } } : {}) }
    };
  }

  private async _newest(signal: AbortSignal): Promise<IBriefFact[]> {
    const { units } = await readScalars(this.source, { names: [] }, signal);
    const drawn = new Set(this.picture.lines.map(({ key }) => key));
    const names = Object.keys(units).filter(name => !drawn.has(name) && !name.startsWith('megalens_'));
    const { lines } = await readScalars(
      this.source,
      { names: names.slice(0, MOST_FACTS), points: 4 },
      signal
    );
    return lines.map(({ name, steps, values, unit }) => ({
      name: shortName(name, MOST_LETTERS),
      value: `${formatNumber(values[values.length - 1] ?? NaN, 3)} ${unit ?? ''}`.trim(),
      title: this.t('%1 at step %2', name, formatInteger(steps[steps.length - 1] ?? NaN))
    }));
  }
}

/** What a map of layers and steps is of. */
export type MapSubject =
  { readonly of: 'moments'; readonly stat: MomentStat } | { readonly of: 'tensors'; readonly flag: string };

/** Choose what a run's map shows: gradients, else activations, else what there is; null where nothing is. */
export async function mapSubject(source: IRunSource, flags: readonly string[]): Promise<MapSubject | null> {
  // A map of what can be read is better than none.
  const index = await source.moments?.index().catch(() => null);
  const stats = (index?.stats ?? []).filter(({ rows }) => rows > 0).map(({ stat }) => stat);
  const stat = TELLING.find(each => stats.includes(each)) ?? stats[0];
  if (stat !== undefined) {
    return { of: 'moments', stat };
  }
  const shapes = await Promise.all(
    flags.map(async flag => ({ flag, ...(await source.shapeOf(flag).catch(() => ({ layers: [] }))) }))
  );
  const flag = shapes.find(({ layers }) => layers.length > 0)?.flag ?? flags[0];
  return flag === undefined ? null : { of: 'tensors', flag };
}

/** Flags that a run traces now, or that its recording says it traced. */
export function tracedFlags({ hello }: Pick<IRunSource, 'hello'>): readonly string[] {
  const known = (hello?.flags ?? []).filter((info: FlagInfo) => info.layers.length > 0);
  return known.flatMap(({ name }) => (own(hello?.config.flags ?? {}, name) === undefined ? [] : [name]));
}

type Steps = readonly number[] | null;

export function momentOptions(stat: MomentStat, steps: Steps): FullOptionsOf<'statistics'> {
  return fullViewOptions({
    view: 'statistics',
    kind: 'layer_map',
    stat,
    statistic: 'rms',
    steps
  }) as FullOptionsOf<'statistics'>;
}

export function trendOptions(flag: string, steps: Steps): FullOptionsOf<'trend'> {
  return fullViewOptions({ view: 'trend', kind: 'heatmap', flag, steps }) as FullOptionsOf<'trend'>;
}

/** The rms of a statistic as layer × step, whose colours a few values do not spread out. */
export class MomentMapTile extends MapPane {
  protected override readonly leadsWithEvent = true;

  constructor(source: IRunSource, env: IViewEnvironment<StatisticsOptions>) {
    super(source, env, new OtherRuns(null, 'moments', () => undefined));
  }

  protected override colorRange(values: readonly ArrayLike<number>[]): readonly [number, number] | null {
    return robustRange(values);
  }

  /** A click pins the step and draws nothing more. */
  override clicked(): void {
    // Nothing.
  }

  /** What is not finite is among the news. */
  protected override async notes(): Promise<[]> {
    return [];
  }
}

/** The rms of a traced tensor as layer × step, whose colours a few values do not spread out. */
export class TensorMapTile extends TrendView {
  protected override readonly leadsWithEvent = true;

  constructor(source: IRunSource, env: IViewEnvironment<TrendOptions>) {
    super(source, env as IViewEnvironment<Required<TrendOptions>>);
  }

  protected override colorRange(values: readonly ArrayLike<number>[]): readonly [number, number] | null {
    return robustRange(values);
  }
}

/** Whether a run can still be asked to trace something. */
export const canTrace = (source: IRunSource): boolean =>
  takesChanges(source) && (source.hello?.flags.length ?? 0) > 0;
