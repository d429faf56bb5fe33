import type {
  HeatmapOptions,
  HistoryOptions,
  TrendOptions,
  ViewOptions
} from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import { HeatmapView } from '../heatmap/heatmap-view';
import { chosenLayers } from '../shared/layers';
import type { Control } from '../shared/control';
import type { IComposition, ICompositionEnvironment, IViewPart } from '../shared/definition';
import type { IViewEnvironment } from '../shared/view-model';
import { HistoryMap } from './history-map';

/** Controls of the map's toolbar that a history has; the others come from the tensor's. */
const OF_MAP = ['run', 'flag', 'part', 'layers', 'statistic', 'phase', 'pass', 'rank'];
const OF_TENSOR = ['head', 'sample', 'steps', 'go', 'transform', 'color_range'];

/** A statistic as layer × step, and the tensor of the layer and step that are chosen there: a trend and a heatmap that move together. */
export class HistoryView implements IComposition {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<HistoryOptions>
  ) {}

  readonly className = 'jp-MegalensHistory';
  readonly zoomed = null;
  readonly unpictured = '';

  async prepare(): Promise<void> {
    const { flag, layers: chosen } = this._env.options;
    const { layers } = await this._source.shapeOf(flag).catch(() => ({ layers: [] }));
    this._first = chosenLayers(chosen, layers)[0] ?? layers[0] ?? 0;
  }

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    return [
      {
        key: 'map',
        className: 'jp-MegalensHistory-map',
        options: mapOptions(options),
        create: (source, env) =>
          (this._map = new HistoryMap(source, env as IViewEnvironment<TrendOptions>, choice => {
            this._tensor?.leavePin();
            this._env.choose(choice);
          }))
      },
      {
        key: 'tensor',
        className: 'jp-MegalensHistory-tensor',
        options: tensorOptions(options, this._layer),
        create: (source, env) =>
          (this._tensor = new HeatmapView(source, env as IViewEnvironment<HeatmapOptions>))
      }
    ];
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === 'map' || isDrawn('map');
  }

  heard(key: string, options: Partial<ViewOptions>): Partial<HistoryOptions> {
    const { layers, color_range: range, ...heard } = options as Partial<HistoryOptions>;
    const chosen = pick(heard, this._env.options);
    const colors = key === 'map' ? { map_range: range } : { color_range: range };
    return {
      ...chosen,
      ...(range === undefined ? {} : colors),
      ...(chosen.flag === undefined ? {} : { head: 0, layer: null }),
      ...(layers === undefined ? {} : key === 'map' ? { layers } : { layer: Number(layers) })
    };
  }

  drawn(key: string): void {
    const shown = this._tensor?.shown;
    if (this._map) {
      this._map.choice = shown ? { layer: shown.layers[0]?.layer ?? this._layer, step: shown.step } : null;
    }
    if (key === 'map' && this._env.options.layer === null && this._tensor && !shown) {
      // The first layer is known only once there are rows.
      this._env.relayout();
    }
  }

  controls(of: (key: string) => readonly Control[]): { main: readonly Control[] } {
    const map = of('map').filter(({ id }) => OF_MAP.includes(id));
    const tensor = of('tensor').filter(({ id }) => OF_TENSOR.includes(id));
    const range = of('map').flatMap(each =>
      each.id === 'color_range' && each.kind === 'select'
        ? { ...each, id: 'map_range', label: this._env.t('Range of the map') }
        : []
    );
    return {
      main: [...map, ...tensor, ...range, ...of('map').filter(({ id }) => id === 'pin' || id === 'filter')]
    };
  }

  private get _layer(): number {
    return this._env.options.layer ?? this._first;
  }

  /** The first layer that has rows. */
  private _first = 1;
  private _map: HistoryMap | null = null;
  private _tensor: HeatmapView | null = null;
}

/** Those members of options that another view's options have as well. */
function pick<T extends object>(from: object, names: T): Partial<T> {
  return Object.fromEntries(
    Object.entries(from).filter(([name]) => Object.hasOwn(names, name) && name !== 'view')
  ) as Partial<T>;
}

function mapOptions(options: Required<HistoryOptions>): Required<TrendOptions> {
  const { flag, part, layers, statistic, steps, transform, phase, rank, pass, map_range } = options;
  const whole = { positions: 'all', vector: 0, interval: 'none', smoothing: 0 } as const;
  const alone = { compare: 'overlay', align: 'step' } as const;
  const lines = { runs: [] as string[], hidden: [] as string[] };
  return {
    view: 'trend',
    kind: 'heatmap',
    flag,
    part,
    layers,
    statistic,
    steps,
    transform,
    color_range: map_range,
    phase,
    rank,
    pass,
    ...whole,
    ...alone,
    ...lines
  };
}

function tensorOptions(options: Required<HistoryOptions>, layer: number): Required<HeatmapOptions> {
  const { flag, part, step, sample, head, transform, color_range, phase, rank, pass } = options;
  const one = { layers: String(layer), scale: 'own', generation: null } as const;
  return {
    view: 'heatmap',
    flag,
    part,
    step,
    sample,
    head,
    transform,
    color_range,
    phase,
    rank,
    pass,
    ...one
  };
}
