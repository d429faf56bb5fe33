import { fullViewOptions } from '../../protocol/view-options';
import type { SplitOptions, ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import { changedOf, sliderControls } from '../pipeline/sliders';
import type { Control } from '../shared/control';
import type { IComposition, ICompositionEnvironment, IViewPart } from '../shared/definition';
import { selectControl, type IChoice } from '../shared/select-control';
import type { IViewEnvironment, ViewModel } from '../shared/view-model';
import { familyTitle } from '../../plan/split/plan-split';
import { RolesPane } from './roles-pane';
import { SplitLayoutsPane } from './split-layouts-pane';
import { SplitPlanPane } from './split-plan-pane';
import { drawnOf, SplitReader } from './split-reader';
import { splitSliders } from './split-sliders';
import type { SplitSetting } from './split-what-if';

type Options = Required<SplitOptions>;
type Pane = new (
  source: IRunSource,
  env: IViewEnvironment<SplitOptions>,
  reader: SplitReader
) => ViewModel<SplitOptions>;

const PANES: readonly (readonly [Exclude<Options['kind'], 'all'>, Pane])[] = [
  ['plan', SplitPlanPane],
  ['map', RolesPane],
  ['layouts', SplitLayoutsPane]
];
const LAYOUTS: readonly Options['layout'][] = [
  ...(['split', 'run', 'best', 'megafbd'] as const),
  ...(['ordinary', 'recompute', 'pipeline', 'pipeline_recompute'] as const)
];

/** Forward and backward passes in different processes: the step of each, who does what, and other ways to train on the same devices; below the toolbar the sliders of what if. */
export class SplitView implements IComposition {
  constructor(
    source: IRunSource,
    private readonly _env: ICompositionEnvironment<SplitOptions>
  ) {
    this._reader = new SplitReader(source);
  }

  readonly className = 'jp-MegalensMoments jp-MegalensPipeline';
  readonly zoomed = null;
  get unpictured(): string {
    return this._env.t('There is no layout to draw.');
  }

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    return PANES.filter(([key]) => options.kind === 'all' || options.kind === key).map(([key, pane]) => ({
      key,
      className: 'jp-MegalensMoments-pane',
      options: options as Required<ViewOptions>,
      create: (source, env) => new pane(source, env as IViewEnvironment<SplitOptions>, this._reader)
    }));
  }

  shows(): boolean {
    return true;
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<SplitOptions> {
    return options as Partial<SplitOptions>;
  }

  drawn(): void {
    this._env.rearrange();
  }

  controls(of: (key: string) => readonly Control[]): {
    main: readonly Control[];
    folded: { label: string; controls: readonly Control[] | null };
  } {
    const { _env: env, _reader: reader } = this;
    const { options, t } = env;
    const [name] = PANES.flatMap(([key]) => of(key).filter(({ id }) => id === 'run'));
    const sliders = splitSliders(t);
    const values = reader.last?.what.values;
    const names = Object.keys(sliders) as SplitSetting[];
    const changed = changedOf(names, options, fullViewOptions({ view: 'split' })) as Partial<SplitOptions>;
    const maps: Record<Options['rank_map'], string> = {
      megalens: t('Megalens'),
      megafbd: t('MegaFBD'),
      one_flag: t('MegaFBD, one flag')
    };
    return {
      main: [
        ...(name ? [name] : []),
        selectControl('layout', t('Layout'), options.layout, this._layouts(), layout =>
          env.choose({ layout })
        ),
        selectControl('kind', t('Draw'), options.kind, this._kinds(), kind => env.choose({ kind })),
        ...(options.kind === 'map' || options.kind === 'all'
          ? [
              selectControl('rank-map', t('Map of'), options.rank_map, maps, rank_map =>
                env.choose({ rank_map })
              )
            ]
          : []),
        {
          kind: 'toggle',
          id: 'what-if',
          text: t('What if'),
          title: t('Change devices, times, links and memory'),
          pressed: this._isOpen,
          change: isOpen => {
            this._isOpen = isOpen;
            env.rearrange();
          }
        },
        ...(reader.last?.measured
          ? [
              {
                kind: 'toggle',
                id: 'measured',
                text: t('Measured'),
                title: t('Lay the last measured step over the plan of the run’s own layout'),
                pressed: options.measured,
                change: (measured: boolean) => env.choose({ measured })
              } as const
            ]
          : []),
        ...(Object.keys(changed).length > 0
          ? [
              {
                kind: 'chip',
                id: 'changed',
                text: t('changed'),
                title: t('Go back to what was measured, or the usual'),
                remove: () => env.choose(changed)
              } as const
            ]
          : [])
      ],
      folded: {
        label: t('What if'),
        controls:
          this._isOpen && values
            ? sliderControls(
                sliders,
                options,
                values,
                change => env.choose(change as Partial<SplitOptions>),
                t
              )
            : null
      }
    };
  }

  dispose(): void {
    this._reader.dispose();
  }

  private _layouts(): IChoice<Options['layout']>[] {
    const { t } = this._env;
    const { last } = this._reader;
    return LAYOUTS.map(value => {
      const found = last ? drawnOf(last, value) : null;
      return {
        value,
        text: value === 'run' ? t('As it runs') : value === 'best' ? t('best') : familyTitle(value),
        disabled: value === 'run' && last !== null && last.run === null,
        title: found !== null && 'refused' in found ? found.refused.message : ''
      };
    });
  }

  private _kinds(): Record<Options['kind'], string> {
    const { t } = this._env;
    return { all: t('all'), plan: t('step'), map: t('roles'), layouts: t('layouts') };
  }

  private readonly _reader: SplitReader;
  private _isOpen = false;
}
