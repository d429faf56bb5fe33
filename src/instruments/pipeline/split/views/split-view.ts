import { fullViewOptions } from '../../../../protocol/view-options';
import type { SplitOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { ICompositionEnvironment, IViewDefinition } from '../../../../views/shared/definition';
import { selectControl, type IChoice } from '../../../../views/shared/control';
import { PlanView, type IPlanToolbar, type PlanPanes } from '../../views/plan-view';
import { changedOf, sliderControls } from '../../views/what-if';
import { familyTitle } from '../plan/plan-split';
import { RolesPane } from './roles-pane';
import { SplitLayoutsPane } from './split-layouts-pane';
import { SplitPlanPane } from './split-plan-pane';
import { drawnOf, SplitReader } from './split-reader';
import { splitSliders, type SplitSetting } from './split-what-if';

type Options = Required<SplitOptions>;

const PANES: PlanPanes<SplitOptions, SplitReader> = [
  ['plan', SplitPlanPane],
  ['map', RolesPane],
  ['layouts', SplitLayoutsPane]
];
const LAYOUTS: readonly Options['layout'][] = [
  ...(['split', 'run', 'best', 'megafbd'] as const),
  ...(['ordinary', 'recompute', 'pipeline', 'pipeline_recompute'] as const)
];

/** Forward and backward passes in different processes: the step of each, who does what, and other ways to train on the same devices. */
class SplitView extends PlanView<SplitOptions, SplitReader> {
  constructor(source: IRunSource, env: ICompositionEnvironment<SplitOptions>) {
    super(env, new SplitReader(source), PANES);
  }

  get unpictured(): string {
    return this.env.t('There is no layout to draw.');
  }

  protected toolbar(): IPlanToolbar<SplitOptions> {
    const { env, reader } = this;
    const { options, t } = env;
    const sliders = splitSliders(t);
    const values = reader.last?.what.values;
    const names = Object.keys(sliders) as SplitSetting[];
    const maps: Record<Options['rank_map'], string> = {
      megalens: t('Megalens'),
      megafbd: t('MegaFBD'),
      one_flag: t('MegaFBD, one flag')
    };
    return {
      choices: [
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
          : [])
      ],
      titles: {
        whatIf: t('Change devices, times, links and memory'),
        measured: t('Lay the last measured step over the plan of the run’s own layout')
      },
      changed: changedOf(names, options, fullViewOptions({ view: 'split' })) as Partial<SplitOptions>,
      sliders: () =>
        values
          ? sliderControls(sliders, options, values, change => env.choose(change as Partial<SplitOptions>), t)
          : null
    };
  }

  private _layouts(): IChoice<Options['layout']>[] {
    const { t } = this.env;
    const { last } = this.reader;
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
    const { t } = this.env;
    return { all: t('all'), plan: t('step'), map: t('roles'), layouts: t('layouts') };
  }
}

export const view: IViewDefinition<SplitOptions> = {
  compose: (source, env) => new SplitView(source, env)
};
