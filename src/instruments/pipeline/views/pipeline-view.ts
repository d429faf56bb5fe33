import type { PipelineOptions } from '../../../protocol/views.generated';
import { fullViewOptions } from '../../../protocol/view-options';
import type { IRunSource } from '../../../store/source';
import type { ICompositionEnvironment, IViewDefinition } from '../../../views/shared/definition';
import { selectControl, type IChoice } from '../../../views/shared/control';
import type { Outcome } from '../plan';
import { MemoryPane } from './memory-pane';
import { PipelineReader } from './pipeline-reader';
import { PlanPane, SchedulesPane } from './plan-pane';
import { PlanView, type IPlanToolbar, type PlanPanes } from './plan-view';
import { SCHEDULES, scheduleWords } from './operation-words';
import { changedSettings, whatIfControls } from './what-if';

type Options = Required<PipelineOptions>;

const PANES: PlanPanes<PipelineOptions, PipelineReader> = [
  ['plan', PlanPane],
  ['memory', MemoryPane],
  ['schedules', SchedulesPane]
];

/** A plan of pipeline stages with what was measured laid over it, its memory, and other schedules beside it. */
class PipelineView extends PlanView<PipelineOptions, PipelineReader> {
  constructor(source: IRunSource, env: ICompositionEnvironment<PipelineOptions>) {
    super(env, new PipelineReader(source), PANES);
  }

  get unpictured(): string {
    return this.env.t('There is no plan to draw.');
  }

  override shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key !== 'memory' || this.env.options.kind === key || isDrawn(key);
  }

  protected toolbar(): IPlanToolbar<PipelineOptions> {
    const { env, reader } = this;
    const { options, t } = env;
    const values = reader.last?.what.values;
    return {
      choices: [
        selectControl('schedule', t('Schedule'), options.schedule, this._schedules(), schedule =>
          env.choose({ schedule })
        ),
        selectControl('kind', t('Draw'), options.kind, this._kinds(), kind => env.choose({ kind }))
      ],
      titles: {
        whatIf: t('Change stages, times, links and memory'),
        measured: t('Lay the last measured step over the plan')
      },
      changed: changedSettings(options, fullViewOptions({ view: 'pipeline' })),
      sliders: () => (values ? whatIfControls(options, values, change => env.choose(change), t) : null)
    };
  }

  private _schedules(): IChoice<Options['schedule']>[] {
    const { t } = this.env;
    const planned = new Map(this.reader.last?.planned.map(each => [each.schedule, each]));
    return SCHEDULES.map(value => ({
      value,
      text: scheduleWords(value, t),
      disabled: value === 'measured' && this.reader.last?.measured === null,
      title: refusalOf(planned.get(value))
    }));
  }

  private _kinds(): Record<Options['kind'], string> {
    const { t } = this.env;
    return { all: t('all'), plan: t('plan'), memory: t('memory'), schedules: t('schedules') };
  }
}

/** Why a schedule cannot be had; empty where it can. */
const refusalOf = (outcome: Outcome | undefined): string =>
  outcome && 'refused' in outcome ? outcome.refused.message : '';

export const view: IViewDefinition<PipelineOptions> = {
  compose: (source, env) => new PipelineView(source, env)
};
