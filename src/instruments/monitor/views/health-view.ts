import { isHere } from '../../../protocol/view-info';
import { fullViewOptions } from '../../../protocol/view-options';
import type {
  StatisticsOptions,
  ScalarsOptions,
  TimelineOptions,
  ViewOptions,
  HealthOptions
} from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import { oneTensor } from '../../../views/statistics/name-facts';
import { STATISTICS, STATS } from '../../../views/statistics/words';
import { ScalarLines } from '../../../views/scalars/scalar-lines';
import { type Control, selectControl } from '../../../views/shared/control';
import type {
  IComposition,
  ICompositionEnvironment,
  IViewModel,
  IViewPart,
  Create,
  IViewDefinition
} from '../../../views/shared/definition';
import { loadView } from '../../../views/view-code';
import { OtherRuns } from '../../../views/kits/lines/other-runs';
import type { IViewEnvironment } from '../../../views/shared/view-model';
import { formatInteger } from '../../../charts';
import { LinesPane } from '../../../views/statistics/lines-pane';
import type { IMark, Loaded } from '../../../views/shared/content';
import { type IAlarm, SEVERITIES } from '../store/alarms';
import { HealthReader, type HealthChoice, severityWords } from './health-facts';
import { ListPane, WayPane, MutedPane, RulesPane } from './rules-pane';
import { MarksPane } from './marks-pane';
import { RuleSettings } from './rule-settings';

/** The tensor of an alarm over the steps around it. */
class AroundPane extends LinesPane {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<StatisticsOptions>,
    others: OtherRuns,
    private readonly _alarm: () => IAlarm | null
  ) {
    super(source, env, others);
  }

  override async load(signal: AbortSignal): Promise<Loaded> {
    const loaded = await super.load(signal);
    const alarm = this._alarm();
    if ('state' in loaded || alarm === null) {
      return loaded;
    }
    const title = this.t('%1 of %2, around step %3', this.subject, alarm.name, formatInteger(alarm.step));
    return { content: { ...loaded.content, title } };
  }

  override pinned(): IMark | null {
    const step = this._alarm()?.step;
    return step === undefined ? null : { facet: null, x: [step, step], y: null };
  }
}

/** Steps that are drawn before and after an alarm. */
const BEFORE = 20;
const AFTER = 10;

type Pane = new (source: IRunSource, env: IViewEnvironment, reader: HealthReader) => IViewModel;

/** Whether a training is healthy: first anomaly, marks over step × layer, the tensor's line, all alarms. */
class HealthView implements IComposition {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<HealthChoice>
  ) {
    this._settings = new RuleSettings(_source, () => this._env.refresh(true));
    this._reader = new HealthReader(_source, this._settings);
    this._others = new OtherRuns(null, 'moments', () => undefined);
  }

  readonly className = 'jp-MegalensMoments jp-MegalensHealth';
  readonly zoomed = 'marks';
  readonly unpictured = '';

  async prepare(): Promise<void> {
    const { alarms, shown } = await this._reader
      .facts(this._env.options)
      .catch(() => ({ alarms: [], shown: null }));
    this._shown = shown;
    this._spans =
      shown && aroundOf(shown)?.view === 'timeline' ? await spansView().catch(() => null) : this._spans;
    this._rules = [...new Set(alarms.map(each => each.rule))].sort();
  }

  layout(): readonly IViewPart[] {
    const { options } = this._env;
    const className = 'jp-MegalensMoments-pane';
    const part = (key: string, pane: Pane, unpictured: boolean, more = ''): IViewPart => ({
      key,
      className: className + more,
      unpictured,
      options: options as Required<ViewOptions>,
      create: (source, env) => new pane(source, env, this._reader)
    });
    const around = this._shown && aroundOf(this._shown);
    const spans = this._spans;
    this._hasMuted = this._settings.muted.length > 0;
    this._hasRules = this._settings.rules.length > 0;
    return [
      part('marks', MarksPane, false),
      ...(this._shown ? [part('way', WayPane, true)] : []),
      ...(around && (around.view !== 'timeline' || spans)
        ? [
            {
              key: around.view,
              className,
              options: fullViewOptions(around),
              create: (source: IRunSource, env: IViewEnvironment) =>
                around.view === 'statistics'
                  ? new AroundPane(
                      source,
                      env as IViewEnvironment<StatisticsOptions>,
                      this._others,
                      () => this._shown
                    )
                  : around.view === 'timeline' && spans
                    ? spans(source, env)
                    : new ScalarLines(source, env as IViewEnvironment<Required<ScalarsOptions>>)
            }
          ]
        : []),
      ...(this._shown ? [part('list', ListPane, true)] : []),
      ...(this._hasMuted ? [part('muted', MutedPane, true)] : []),
      ...(this._hasRules ? [part('rules', RulesPane, true, ' jp-MegalensHealth-rules')] : [])
    ];
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key === 'marks' || isDrawn(key);
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<HealthChoice> {
    const { options: own } = this._env;
    // The lines' own options, such as their scale, are not the whole's.
    return Object.fromEntries(
      Object.entries(options).filter(([name]) => Object.hasOwn(own, name) && name !== 'view')
    ) as Partial<HealthChoice>;
  }

  drawn(key: string): void {
    // The marks may be out of sight, and then they are not drawn.
    if (
      this._hasMuted !== this._settings.muted.length > 0 ||
      this._hasRules !== this._settings.rules.length > 0
    ) {
      this._env.relayout();
    } else if (key === 'marks') {
      void this._reader.facts(this._env.options).then(
        ({ shown }) => {
          if (shown !== this._shown) {
            this._env.relayout();
          }
        },
        () => undefined
      );
    }
  }

  controls(): { main: readonly Control[] } {
    const { options, t, choose } = this._env;
    const severities = SEVERITIES.map(value => ({ value: value as string, text: severityWords(value, t) }));
    return {
      main: [
        { kind: 'name', id: 'run', text: this._source.name },
        selectControl(
          'severity',
          t('Severity'),
          options.severity as string,
          [{ value: 'all', text: t('all') }, ...severities],
          severity => choose({ severity: severity as HealthChoice['severity'] })
        ),
        selectControl(
          'rule',
          t('Rule'),
          options.rule ?? '',
          [
            { value: '', text: t('all') },
            ...[...new Set([...this._rules, ...(options.rule ? [options.rule] : [])])].map(value => ({
              value,
              text: value
            }))
          ],
          rule => choose({ rule: rule || null })
        )
      ]
    };
  }

  dispose(): void {
    this._settings.dispose();
    this._others.dispose();
  }

  private readonly _reader: HealthReader;
  private readonly _settings: RuleSettings;
  private readonly _others: OtherRuns;
  private _shown: IAlarm | null = null;
  /** What draws spans around an alarm; null while none was shown, or where nothing here does. */
  private _spans: Create | null = null;
  private _hasMuted = false;
  private _hasRules = false;
  private _rules: readonly string[] = [];
}

/** What draws spans; null where that instrument was left out. */
async function spansView(): Promise<Create | null> {
  const code = isHere('timeline') ? await loadView('timeline') : null;
  return code && 'view' in code && 'create' in code.view ? code.view.create : null;
}

/** What draws the tensor, number or time of an alarm over the steps around it; null where nothing does. */
export function aroundOf(alarm: IAlarm): StatisticsOptions | ScalarsOptions | TimelineOptions | null {
  const steps: [number, number] = [Math.max(0, alarm.step - BEFORE), alarm.step + AFTER];
  if (alarm.stat === 'scalar') {
    return { view: 'scalars', names: [alarm.name], steps };
  }
  if (alarm.stat === 'span') {
    // A few steps: of many nothing is seen but bars.
    return { view: 'timeline', steps: [Math.max(0, alarm.step - 2), alarm.step] };
  }
  const stat = STATS.find(each => each === alarm.stat);
  const statistic =
    STATISTICS.find(each => each === alarm.statistic) ??
    (/nan|inf|finite/.test(alarm.statistic) ? 'nonfinite' : /exponent/.test(alarm.statistic) ? 'max' : 'rms');
  return stat === undefined
    ? null
    : { view: 'statistics', stat, statistic, step: alarm.step, steps, ...oneTensor(alarm.name) };
}

export const view: IViewDefinition<HealthOptions> = {
  compose: (source, env) => new HealthView(source, env)
};
