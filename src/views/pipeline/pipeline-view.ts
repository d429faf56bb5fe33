import type { PipelineOptions, ViewOptions } from '../../protocol/views.generated';
import { fullViewOptions } from '../../protocol/view-options';
import type { Outcome } from '../../plan';
import type { IRunSource } from '../../store/source';
import type { Control } from '../shared/control';
import type { IComposition, ICompositionEnvironment, IViewPart } from '../shared/definition';
import { selectControl, type IChoice } from '../shared/select-control';
import type { IViewEnvironment, ViewModel } from '../shared/view-model';
import { MemoryPane } from './memory-pane';
import { PipelineReader } from './pipeline-reader';
import { PlanPane } from './plan-pane';
import { SCHEDULES, scheduleWords } from './schedule-words';
import { SchedulesPane } from './schedules-pane';
import { changedSettings, whatIfControls } from './what-if-controls';

type Options = Required<PipelineOptions>;
type Pane = new (
  source: IRunSource,
  env: IViewEnvironment<PipelineOptions>,
  reader: PipelineReader
) => ViewModel<PipelineOptions>;

const PANES: readonly (readonly [Exclude<Options['kind'], 'all'>, Pane])[] = [
  ['plan', PlanPane],
  ['memory', MemoryPane],
  ['schedules', SchedulesPane]
];

/** A plan of pipeline stages with what was measured laid over it, its memory, and other schedules beside it; below the toolbar the sliders of what if. */
export class PipelineView implements IComposition {
  constructor(
    source: IRunSource,
    private readonly _env: ICompositionEnvironment<PipelineOptions>
  ) {
    this._reader = new PipelineReader(source);
  }

  readonly className = 'jp-MegalensMoments jp-MegalensPipeline';
  readonly zoomed = null;
  get unpictured(): string {
    return this._env.t('There is no plan to draw.');
  }

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    return PANES.filter(([key]) => options.kind === 'all' || options.kind === key).map(([key, pane]) => ({
      key,
      className: 'jp-MegalensMoments-pane',
      options: options as Required<ViewOptions>,
      create: (source, env) => new pane(source, env as IViewEnvironment<PipelineOptions>, this._reader)
    }));
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key !== 'memory' || this._env.options.kind === key || isDrawn(key);
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<PipelineOptions> {
    return options as Partial<PipelineOptions>;
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
    const values = reader.last?.what.values;
    const changed = changedSettings(options, fullViewOptions({ view: 'pipeline' }));
    return {
      main: [
        ...(name ? [name] : []),
        selectControl('schedule', t('Schedule'), options.schedule, this._schedules(), schedule =>
          env.choose({ schedule })
        ),
        selectControl('kind', t('Draw'), options.kind, this._kinds(), kind => env.choose({ kind })),
        {
          kind: 'toggle',
          id: 'what-if',
          text: t('What if'),
          title: t('Change stages, times, links and memory'),
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
                title: t('Lay the last measured step over the plan'),
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
          this._isOpen && values ? whatIfControls(options, values, change => env.choose(change), t) : null
      }
    };
  }

  dispose(): void {
    this._reader.dispose();
  }

  private _schedules(): IChoice<Options['schedule']>[] {
    const { t } = this._env;
    const planned = new Map(this._reader.last?.planned.map(each => [each.schedule, each]));
    return SCHEDULES.map(value => ({
      value,
      text: scheduleWords(value, t),
      disabled: value === 'measured' && this._reader.last?.measured === null,
      title: refusalOf(planned.get(value))
    }));
  }

  private _kinds(): Record<Options['kind'], string> {
    const { t } = this._env;
    return { all: t('all'), plan: t('plan'), memory: t('memory'), schedules: t('schedules') };
  }

  private readonly _reader: PipelineReader;
  private _isOpen = false;
}

/** Why a schedule cannot be had; empty where it can. */
const refusalOf = (outcome: Outcome | undefined): string =>
  outcome && 'refused' in outcome ? outcome.refused.message : '';
