import { translatedLater } from '../../protocol/texts';
import { formatInteger } from '../../charts';
import type {
  OverviewOptions,
  ScalarsOptions,
  TrendOptions,
  StatisticsOptions,
  ViewOptions
} from '../../protocol/views.generated';
import { fullViewOptions, type FullViewOptions } from '../../protocol/view-options';
import { isOver, type IRunSource, type SourceChange } from '../../store/source';
import type { Control } from '../shared/control';
import type {
  Create,
  IComposition,
  ICompositionEnvironment,
  IViewDefinition,
  IViewPart
} from '../shared/definition';
import { capital, flagWords } from '../shared/describe';
import { connectionState, NO_ACTIONS } from '../shared/states';
import type { IViewEnvironment } from '../shared/view-model';
import { statsWords } from '../statistics/words';
import { CostTile } from './cost-tile';
import { NewsTile } from './news-tile';
import { OfferTile } from './offer-tile';
import {
  mapSubject,
  MomentMapTile,
  momentOptions,
  ScalarsTile,
  TensorMapTile,
  tracedFlags,
  trendOptions,
  type MapSubject
} from './picture-tiles';
import { addedTiles, type ITile, type ITilePage, type ITiles } from './tiles';
import { guarded } from '../shared/tile';

/** Least time between two drawings of a tile, ms: pictures, and words, which nobody reads faster. */
const PICTURE_EVERY = 1000;
const WORDS_EVERY = 2000;
/** Pixels of a picture, at most where one stands below the other, and what is around two side by side. */
const PICTURE = { least: 130, usual: 190, most: 420, beside: 720 };
const AROUND_PICTURES = 458;

/** A run at a glance: tiles, each of which opens its view. */
class OverviewView implements IComposition, ITilePage {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<OverviewOptions>
  ) {
    this.unpictured = _env.t('There is nothing to draw of this run yet.');
    _source.changed.connect(this._heard, this);
  }

  readonly className = 'jp-MegalensOverview';
  readonly zoomed = null;
  readonly isLaidOut = true;
  readonly unpictured: string;

  async prepare(): Promise<void> {
    [this._added, this._map] = await Promise.all([
      addedTiles(),
      mapSubject(this._source, this._flags ?? tracedFlags(this._source))
    ]);
  }

  layout(): readonly IViewPart[] {
    if (this._added === null) {
      // The loss needs nothing that has to be found out first.
      return [this._scalars()];
    }
    const known = this._added;
    const added = known.flatMap(({ tiles }) => tiles).sort((a, b) => a.order - b.order);
    return [
      this._scalars(),
      this._layers(),
      this._words(
        'news',
        translatedLater('Out of the ordinary'),
        undefined,
        (source, env) => new NewsTile(source, env as IViewEnvironment, this, known)
      ),
      ...added.filter(({ isWide }) => !isWide).map(tile => this._tile(tile)),
      this._words(
        'cost',
        translatedLater('Cost and recording'),
        undefined,
        (source, env) => new CostTile(source, env as IViewEnvironment)
      ),
      ...added.filter(({ isWide }) => isWide).map(tile => this._tile(tile))
    ];
  }

  /** A row of its own has only what has something to show. */
  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return !this._wide.has(key) || isDrawn(key);
  }

  /** What a tile chooses is its own: nothing of it is an option of the page. */
  heard(key: string, options: Partial<ViewOptions>): Partial<OverviewOptions> {
    this._chosen.set(key, { ...this._chosen.get(key), ...options } as Partial<ViewOptions>);
    this._env.relayout();
    return {};
  }

  controls(of: (key: string) => readonly Control[]): { readonly main: readonly Control[] } {
    return {
      main: [
        { kind: 'name', id: 'run', text: this._source.name },
        { kind: 'name', id: 'state', text: this._stateWords() },
        ...of('scalars').filter(({ id }) => id === 'pin' || id === 'filter')
      ]
    };
  }

  to(options: ViewOptions, step?: number): (() => void) | undefined {
    const { openView } = this._env;
    return openView === null
      ? undefined
      : () => {
          if (step !== undefined) {
            this._source.link?.pin(step);
          }
          openView(options);
        };
  }

  dispose(): void {
    this._source.changed.disconnect(this._heard, this);
  }

  private _scalars(): IViewPart {
    const { names, steps } = this._env.options;
    const opens = { view: 'scalars', names, steps } as const;
    return this._picture(
      'scalars',
      translatedLater('Loss'),
      opens,
      fullViewOptions(opens),
      (source, env) => new ScalarsTile(source, env as IViewEnvironment<ScalarsOptions>)
    );
  }

  private _layers(): IViewPart {
    const { t, options } = this._env;
    const { steps } = options;
    const map = this._map;
    if (map === null) {
      return this._words(
        'map',
        translatedLater('Layers over steps'),
        undefined,
        (source, env) => new OfferTile(source, env as IViewEnvironment)
      );
    }
    if (map.of === 'moments') {
      const options = momentOptions(map.stat, steps);
      const opens = { view: 'statistics', kind: 'layer_map', stat: map.stat, steps } as const;
      const title = t('%1: rms by layer', capital(statsWords(map.stat, t)));
      return this._picture(
        `map-${map.stat}`,
        title,
        opens,
        options,
        (source, env) => new MomentMapTile(source, env as IViewEnvironment<StatisticsOptions>)
      );
    }
    const opens = { view: 'trend', kind: 'heatmap', flag: map.flag, steps } as const;
    const title = t('%1: rms by layer', flagWords(this._source.hello, map.flag, null, t));
    return this._picture(
      `map-${map.flag}`,
      title,
      opens,
      trendOptions(map.flag, steps),
      (source, env) => new TensorMapTile(source, env as IViewEnvironment<TrendOptions>)
    );
  }

  private _tile(tile: ITile): IViewPart {
    if (tile.isWide) {
      this._wide.add(tile.id);
    }
    return this._words(
      tile.id,
      tile.title,
      tile.opens,
      (source, env) => tile.create(source, env as IViewEnvironment, this),
      tile.isWide ?? false
    );
  }

  private _picture(
    key: string,
    title: string,
    opens: ViewOptions,
    options: FullViewOptions,
    create: Create
  ): IViewPart {
    const chosen = { ...options, ...this._chosen.get(key) } as FullViewOptions;
    return {
      ...this._part(key, title, opens, chosen, create),
      className: `jp-MegalensTile jp-mod-picture jp-mod-${key.split('-')[0]}`,
      every: PICTURE_EVERY
    };
  }

  private _words(
    key: string,
    title: string,
    opens: ViewOptions | undefined,
    create: Create,
    isWide = false
  ): IViewPart {
    return {
      ...this._part(key, title, opens, this._env.options as FullViewOptions, create),
      className: `jp-MegalensTile jp-mod-${key}${isWide ? ' jp-mod-wide' : ''}`,
      every: WORDS_EVERY,
      unpictured: false
    };
  }

  private _part(
    key: string,
    title: string,
    opens: ViewOptions | undefined,
    options: FullViewOptions,
    create: Create
  ): IViewPart {
    const { t } = this._env;
    const open = opens && this.to(opens);
    return {
      key,
      className: '',
      options: options as Required<ViewOptions>,
      heading: { text: t(title), ...(open && { open, hint: t('Open the view') }) },
      create: (source, env) =>
        guarded(
          () => create(source, env),
          source,
          env,
          () => this._height()
        )
    };
  }

  /** Pixels of a picture: those that the tab has left, within bounds. */
  private _height(): number {
    const { clientHeight: height = 0, clientWidth: width = 0 } = this._env.frame ?? {};
    const { least, usual, beside } = PICTURE;
    const most = width > beside ? height : PICTURE.most;
    return height === 0 ? usual : Math.max(least, Math.min(most, height - AROUND_PICTURES));
  }

  private _stateWords(): string {
    const { _source: source, _env: env } = this;
    const known = connectionState(source, NO_ACTIONS, env.t);
    const step = source.status === null ? '' : formatInteger(source.status.step);
    return (
      known?.sentence ??
      (isOver(source) ? env.t('recorded') : step === '' ? env.t('live') : env.t('live, step %1', step))
    );
  }

  private _heard(_: IRunSource, change: SourceChange): void {
    // The first rows of a stream may bring a tile, or another map.
    const isFirst = change.kind === 'rows' && !this._seen.has(change.stream);
    if (change.kind === 'rows') {
      this._seen.add(change.stream);
    }
    if (change.kind === 'configured' && change.message.applied) {
      this._flags = Object.keys(change.message.config.flags);
    }
    if (isFirst || change.kind === 'hello' || change.kind === 'configured') {
      this._env.relayout();
    }
  }

  private _added: readonly ITiles[] | null = null;
  private _map: MapSubject | null = null;
  /** What is traced now, where that changed since the run said so. */
  private _flags: readonly string[] | null = null;
  private readonly _wide = new Set<string>();
  private readonly _seen = new Set<string>();
  private readonly _chosen = new Map<string, Partial<ViewOptions>>();
}

// The tiles of slices are asked for as soon as there is somebody to show them, not when the page is laid out.
void addedTiles();

export const view: IViewDefinition<OverviewOptions> = {
  compose: (source, env) => new OverviewView(source, env)
};
