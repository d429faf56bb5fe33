import { fullViewOptions } from '../../../../protocol/view-options';
import type { SplitOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { ICompositionEnvironment, IViewDefinition } from '../../../../views/shared/definition';
import { selectControl, type IChoice } from '../../../../views/shared/control';
import { formatBytes, formatInteger, timeWords } from '../../../../charts';
import type { IMark, Loaded } from '../../../../views/shared/content';
import { emptyState } from '../../../../views/shared/states';
import { PlanView, type IPlanToolbar, type PlanPanes } from '../../views/plan-view';
import { changedOf, sliderControls } from '../../views/what-if';
import { familyTitle } from '../plan/plan-split';
import type { ISplitPlanned } from '../plan/planned-split';
import { RolesPane } from './roles-pane';
import { SplitPlanPane } from './split-plan-pane';
import { type ISplitRead, drawnOf, SplitReader } from './split-reader';
import { splitSliders, type SplitSetting } from './split-what-if';
import { splitLanes } from './split-lanes';
import { SplitPane, deviceWords, layoutWords } from './split-pane';

/** The best layout of each family under one another on one axis of time, the fastest first. */
class SplitLayoutsPane extends SplitPane {
  override readonly subject = this.t('Layouts');

  protected show(read: ISplitRead): Loaded {
    const { env, options, t } = this;
    const there = read.plan.layouts.flatMap(each => ('refused' in each || each === read.run ? [] : [each]));
    this._shown = [...there].sort((a, b) => a.stepMs - b.stepMs);
    const [first, last] = [this._shown[0], this._shown.at(-1)];
    const refused = read.plan.layouts.flatMap(each => ('refused' in each ? [each.refused.message] : []));
    if (!first || !last) {
      return {
        state: emptyState(refused[0] ?? '', t('Take the limits of memory away'), () =>
          this.choose({ memory_gb: null, others_memory_gb: null })
        )
      };
    }
    return {
      content: {
        title: t('%1 layouts side by side', formatInteger(this._shown.length)),
        caption: [
          t('Each is the best of its family on these devices; any device may be left out.'),
          ...refused
        ],
        summary: t(
          '%1 is the fastest with %2, %3 the slowest with %4.',
          layoutWords(first, t),
          timeWords(first.stepMs),
          layoutWords(last, t),
          timeWords(last.stepMs)
        ),
        ...this.gantt.draw({
          groups: this._shown.map(each => ({
            ...splitLanes(each, null, t),
            heading: this._heading(read, each)
          })),
          chunks: 1,
          hidden: options.hidden,
          width: env.width,
          isDark: env.isDark,
          seen: this.seen,
          hide: hidden => this.choose({ hidden }),
          lanes: t('stage and process')
        })
      }
    };
  }

  /** The layout of the lane is shown. */
  override clicked(mark: IMark): void {
    const family = this._shown[this.gantt.groupOf(mark)]?.layout.family;
    if (family !== undefined) {
      this.choose({ layout: family });
    }
  }

  private _heading({ what }: ISplitRead, planned: ISplitPlanned): string {
    const { t } = this;
    const peak = Math.max(...planned.peakBytes);
    return [
      layoutWords(planned, t),
      t('%1 a step', timeWords(planned.stepMs)),
      deviceWords(planned.devices, what.request),
      ...(peak > 0 ? [formatBytes(peak)] : [])
    ].join(' · ');
  }

  private _shown: readonly ISplitPlanned[] = [];
}

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

/** Split training: the step of each process, who does what, and alternatives on the same devices. */
class SplitView extends PlanView<SplitOptions, SplitReader> {
  constructor(source: IRunSource, env: ICompositionEnvironment<SplitOptions>) {
    super(env, new SplitReader(source), PANES);
  }

  get unpictured(): string {
    return this.env.t('There is no layout to draw.');
  }

  /** Where too few devices are set, one picture says so. */
  override shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === 'plan' || this.env.options.kind !== 'all' || isDrawn(key);
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
