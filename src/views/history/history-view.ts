import type {
  TrendOptions,
  HeatmapOptions,
  HistoryOptions,
  ViewOptions
} from '../../protocol/views.generated';
import { fullViewOptions, type FullOptionsOf, viewDefaults } from '../../protocol/view-options';
import type { IRunSource } from '../../store/source';
import type { ITrendAnswer } from '../../store/line-data';
import { HeatmapView } from '../heatmap/heatmap-view';
import { chosenLayers } from '../shared/layers';
import type { Control } from '../shared/control';
import type { IComposition, ICompositionEnvironment, IViewPart, IViewDefinition } from '../shared/definition';
import type { IViewEnvironment } from '../shared/view-model';
import type { IMark, IMoved } from '../shared/content';
import { tierWords } from '../shared/describe';
import { TrendView } from '../trend/trend-view';

interface IMapChoice {
  readonly layer: number;
  readonly step: number;
}

/** The map of a history: a layer × step trend in which a cell is chosen by a click or by the keys. */
class HistoryMap extends TrendView {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<TrendOptions>,
    private readonly _choose: (choice: IMapChoice) => void
  ) {
    super(source, env);
  }

  /** The chosen cell; null while nothing is drawn. */
  set choice(choice: IMapChoice | null) {
    if (!same(choice, this._choice)) {
      // What was wanted has come, or something else was chosen.
      this._wanted = null;
    }
    this._choice = choice;
    this.env.place();
  }

  override pinned(): IMark | null {
    const { _choice: choice } = this;
    return choice && this.map.series.some(each => each.layer === choice.layer)
      ? this.map.markAt(choice.step, choice.layer)
      : null;
  }

  override move(key: string): IMoved | null {
    const choice = this._wanted ?? this._choice;
    if (choice && this.map.series.some(each => each.layer === choice.layer)) {
      // The keys go on from the tensor that is shown, or that the key before asked for.
      this.map.showAt(choice.step, choice.layer);
    }
    const moved = super.move(key);
    if (moved && key !== 'copy') {
      this.clicked(moved.mark);
    }
    return moved;
  }

  protected override memoryWords(answer: ITrendAnswer): string[] {
    const first = Math.min(...answer.lines.map(line => line.steps[0] ?? Infinity));
    return answer.memory
      ? tierWords({ ...answer.memory, first, evictedRows: answer.evictedRows }, this.t)
      : [];
  }

  override clicked(mark: IMark): void {
    const { layer, step } = this.pointedBy(mark);
    if (layer !== null && step !== null) {
      this._wanted = { layer, step };
      this._choose(this._wanted);
    }
  }

  private _choice: IMapChoice | null = null;
  /** Chosen here and not shown yet. */
  private _wanted: IMapChoice | null = null;
}

function same(one: IMapChoice | null, other: IMapChoice | null): boolean {
  return one?.layer === other?.layer && one?.step === other?.step;
}

/** Controls of the map's toolbar that a history has; the others come from the tensor's. */
const OF_MAP = ['run', 'flag', 'part', 'layers', 'statistic', 'phase', 'pass', 'rank'];
const OF_TENSOR = ['head', 'sample', 'steps', 'go', 'transform', 'color_range'];

/**
 * A statistic as layer × step, and the tensor of the layer and step that are chosen there: a trend and a
 * heatmap that move together.
 */
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

const mapOptions = (options: Required<HistoryOptions>): FullOptionsOf<'trend'> =>
  fullViewOptions({
    ...pick(options, { flag: '', ...viewDefaults('trend') }),
    ...{ view: 'trend', kind: 'heatmap', color_range: options.map_range }
  }) as FullOptionsOf<'trend'>;

const tensorOptions = (options: Required<HistoryOptions>, layer: number): FullOptionsOf<'heatmap'> =>
  fullViewOptions({
    ...pick(options, { flag: '', ...viewDefaults('heatmap') }),
    ...{ view: 'heatmap', layers: String(layer), scale: 'own', generation: null }
  }) as FullOptionsOf<'heatmap'>;

export const view: IViewDefinition<HistoryOptions> = {
  compose: (source, env) => new HistoryView(source, env)
};
