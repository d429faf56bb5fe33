import type { StatisticsOptions, ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { Control } from '../shared/control';
import type { IComposition, ICompositionEnvironment, IViewPart, IViewDefinition } from '../shared/definition';
import type { IViewEnvironment } from '../shared/view-model';
import { RunList } from '../kits/lines/compare';
import { OtherRuns } from '../kits/lines/other-runs';
import { toArquero } from './arquero-code';
import { filterControls } from './filter-controls';
import { CellAcrossPane, CellStepsPane, MovesPane } from './cell-panes';
import { LayersPane } from './layers-pane';
import { LinesPane } from './lines-pane';
import { alongOf, cellsChosen, isMap } from './map-cells';
import { MapPane } from './map-pane';
import { mainControls, type IControlFacts } from './moment-controls';
import { NameFacts, type INameFacts } from './name-facts';
import type { MomentPane } from './pane';
import { TablePane } from './table-pane';
import type { MomentOptions } from './words';

type Pane = new (
  source: IRunSource,
  env: IViewEnvironment<StatisticsOptions>,
  others: OtherRuns
) => MomentPane;

/** A pane of an explorer and which of the explorer's options it is given otherwise. */
interface IPane {
  readonly key: string;
  readonly pane: Pane;
  readonly instead?: Partial<MomentOptions>;
  readonly unpictured?: boolean;
}

/** What each kind is made of. The first pane is the one whose zoom the menu means. */
const PANES: Readonly<Record<MomentOptions['kind'], readonly [IPane, ...IPane[]]>> = {
  overview: [
    { key: 'total', pane: LinesPane, instead: { kind: 'lines', by: [] } },
    { key: 'moves', pane: MovesPane, unpictured: true },
    { key: 'families', pane: LinesPane, instead: { kind: 'lines', by: ['family'] } }
  ],
  lines: [{ key: 'lines', pane: LinesPane }],
  tensors: [{ key: 'lines', pane: LinesPane }],
  layers: [{ key: 'layers', pane: LayersPane }],
  layer_map: [{ key: 'map', pane: MapPane }],
  item_map: [{ key: 'map', pane: MapPane }],
  map: [{ key: 'map', pane: MapPane }],
  table: [{ key: 'table', pane: TablePane, unpictured: true }]
};

/** What a kind is made of, with the lines of a map's cells. */
function panesOf(options: MomentOptions): readonly IPane[] {
  const lines = isMap(options.kind) && cellsChosen(options).length > 0;
  const cells: IPane =
    alongOf(options) === 'step'
      ? { key: 'cells', pane: CellStepsPane }
      : { key: 'cells-across', pane: CellAcrossPane };
  return [...PANES[options.kind], ...(lines ? [cells] : [])];
}

/** Reading more names than this takes longer than a frame. */
const MANY_NAMES = 2000;
/** Time for a picture to be seen first, ms. */
const AFTER_DRAWING = 50;

/**
 * The explorer of the stream `moments`: a toolbar, a line of filters that folds, and the panes of the chosen
 * kind.
 */
export class StatisticsView implements IComposition {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<StatisticsOptions>
  ) {
    this.unpictured = _env.t('A table has no picture. Download it as CSV, or draw lines.');
    this._others = new OtherRuns(_env.runs, 'moments', () => this._panes.forEach(pane => pane.renew()));
    this._runs = new RunList(_source, _env.runs, () => _env.rearrange());
  }

  readonly className = 'jp-MegalensMoments';
  readonly unpictured: string;

  get zoomed(): string {
    return PANES[this._env.options.kind][0].key;
  }

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    return panesOf(options).map(({ key, pane, instead, unpictured = false }) => ({
      key,
      unpictured,
      className: 'jp-MegalensMoments-pane',
      options: { ...options, ...instead },
      create: (source, env) => {
        const made = new pane(source, env as IViewEnvironment<StatisticsOptions>, this._others);
        this._panes.set(key, made);
        return made;
      }
    }));
  }

  /** Behind the first pane only panes that have something to add. */
  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === this.zoomed || isDrawn(key) || isDrawn(this.zoomed);
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<StatisticsOptions> {
    return options as Partial<StatisticsOptions>;
  }

  controls(of: (key: string) => readonly Control[]): ReturnType<IComposition['controls']> {
    const { t, options, choose } = this._env;
    const first = this._panes.get(this.zoomed);
    const facts: IControlFacts = {
      source: this._source,
      options,
      index: first?.index ?? null,
      names: this._namesOf(first?.index?.names ?? []),
      runs: this._runs.known,
      choose
    };
    const fold = (open: boolean): void => {
      this._isOpen = open;
      void this._runs.list();
      this._env.rearrange();
      // The pictures have less or more room.
      this._env.refresh();
    };
    return {
      main: [...mainControls(facts, this._isOpen, fold, t), ...of(this.zoomed)],
      folded: { label: t('Filters'), controls: this._isOpen ? filterControls(facts, t) : null }
    };
  }

  arquero(): Promise<string> {
    const { options } = this._env;
    return toArquero({ ...options, by: [...(this._panes.get(this.zoomed)?.by ?? options.by ?? [])] });
  }

  dispose(): void {
    clearTimeout(this._later);
    this._others.dispose();
  }

  /** What names say; of thousands only after the picture that is being drawn, which would wait for it. */
  private _namesOf(names: readonly string[]): INameFacts {
    const { stat } = this._env.options;
    if (names.length <= MANY_NAMES || this._names.knows(names, stat)) {
      return this._names.of(names, stat);
    }
    clearTimeout(this._later);
    this._later = setTimeout(() => {
      this._names.of(names, stat);
      this._env.rearrange();
    }, AFTER_DRAWING);
    return this._names.of([], stat);
  }

  private readonly _panes = new Map<string, MomentPane>();
  private readonly _others: OtherRuns;
  private readonly _names = new NameFacts();
  private readonly _runs: RunList;
  private _isOpen = false;
  private _later: ReturnType<typeof setTimeout> | undefined;
}

export const view: IViewDefinition<StatisticsOptions> = {
  compose: (source, env) => new StatisticsView(source, env)
};
