import type { PipelineOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import type { ICompositionEnvironment, IViewDefinition } from '../../../views/shared/definition';
import { selectControl, type IChoice } from '../../../views/shared/control';
import type { IPlace, IRecipe } from '../../../charts';
import { COLORS, formatBytes, formatInteger, formatNumber, timeWords } from '../../../charts';
import type { IMark, IMoved, Loaded } from '../../../views/shared/content';
import { lineColors } from '../../../views/kits/lines/legend';
import { lineRecipe } from '../../../views/kits/lines/line-recipe';
import { type ILine, lineAt } from '../../../views/kits/lines/line';
import { nothingYet } from '../../../views/shared/states';
import { hold, moveOf, indexBefore, padded } from '../../../views/shared/scale';
import type { ITip } from '../../../views/shared/table';
import { memoryLine, type IPlanned, type Outcome } from '../plan';
import { type IPipelineRead, PipelineReader, PipelinePane } from './pipeline-reader';
import { PlanPane, SchedulesPane } from './plan-pane';
import { PlanView, type IPlanToolbar, type PlanPanes, GB, slidersOf } from './what-if';
import { SCHEDULES, scheduleWords } from './gantt-pane';

/** Most stages whose lines are reported in a tip. */
const MOST_LISTED = 12;

/** What each stage holds over the planned step: weights, and activations until they are used. */
class MemoryPane extends PipelinePane {
  override readonly subject = this.t('Memory of stages');

  protected show(read: IPipelineRead, shown: IPlanned): Loaded {
    const { env, t } = this;
    const { plan, peakBytes, nominalMs } = shown;
    const peak = Math.max(...peakBytes);
    if (peak === 0) {
      return {
        state: nothingYet(
          t('Memory is drawn once the size of activations or weights is set under What if.'),
          this.actions,
          t
        )
      };
    }
    this._memory = Array.from({ length: plan.stages }, (_, stage) =>
      memoryLine(shown.table, shown.times, stage, shown)
    );
    const lines = this._memory.map(({ time, bytes }, stage) => stepped(time, bytes, nominalMs, stage, t));
    const limit = read.what.request.memory_bytes ?? null;
    const top = Math.max(peak, limit ?? 0) / GB;
    const x = [0, nominalMs * 1.01] as const;
    const y = padded([0, top], false);
    const fullest = peakBytes.indexOf(peak);
    const bars =
      limit === null
        ? []
        : [
            {
              x: 0,
              x2: x[1],
              base: limit / GB,
              value: limit / GB + y[1] / 300,
              name: '',
              color: COLORS.neutral
            }
          ];
    const recipeIn = (dark: boolean): IRecipe => {
      const recipe = lineRecipe(
        {
          lines,
          colors: lineColors(lines, dark),
          bad: [],
          x,
          ys: [y],
          texts: {
            xTitle: t('ms since the step began'),
            yTitle: t('GB'),
            colorTitle: t('stage'),
            yScale: 'linear',
            xLabel: "join(split(format(datum.value, ',~f'), ','), '\u2009')"
          }
        },
        null
      );
      return { ...recipe, datasets: { ...recipe.datasets, bars } };
    };
    return {
      content: {
        title: t('Memory of stages, %1', this.nameOf(shown)),
        caption: [
          t(
            'Weights all the time, an activation from the beginning of its forward pass to the end of its backward pass.'
          ),
          ...(limit === null ? [] : [t('A stage may hold %1: the thin line.', formatBytes(limit))])
        ],
        summary: t('Stage %1 holds most: %2.', formatInteger(fullest), formatBytes(peak)),
        recipe: recipeIn(env.isDark),
        printed: (dark = false) => recipeIn(dark),
        extent: { x, y }
      }
    };
  }

  override probe({ x }: IPlace): IMark | null {
    return this._memory.length === 0 ? null : { facet: null, x: [x, x], y: null };
  }

  override tipOf({ x }: IMark): ITip | null {
    const { t } = this;
    return {
      heading: t('after %1', timeWords(x[0])),
      lines: this._memory.slice(0, MOST_LISTED).map((_, stage) => ({
        name: t('stage %1', formatInteger(stage)),
        value: formatBytes(this._at(stage, x[0]))
      }))
    };
  }

  override move(key: string): IMoved | null {
    const by = moveOf(key);
    const times = this._memory[0]?.time ?? [];
    if (by === undefined || times.length === 0) {
      return null;
    }
    this._timeIndex = hold(this._timeIndex + by[0], times.length);
    const x = times[this._timeIndex] ?? 0;
    const values = this._memory
      .slice(0, MOST_LISTED)
      .map((_, stage) => this.t('stage %1 %2', formatInteger(stage), formatBytes(this._at(stage, x))));
    const sentence = `${timeWords(x)}: ${values.join(', ')}`;
    return {
      said: sentence,
      mark: { facet: null, x: [x, x], y: null },
      ...(key === 'copy' ? { copy: sentence } : {})
    };
  }

  private _at(stage: number, x: number): number {
    const { time, bytes } = this._memory[stage] ?? { time: [], bytes: [] };
    return bytes[Math.max(0, indexBefore(time, x))] ?? 0;
  }

  private _memory: ReturnType<typeof memoryLine>[] = [];
  private _timeIndex = 0;
}

/** A line of steps: what is held from one change to the next. */
function stepped(
  time: Float64Array,
  bytes: Float64Array,
  end: number,
  stage: number,
  t: (text: string, ...args: (string | number)[]) => string
): ILine {
  const x = new Float64Array(2 * time.length);
  const value = new Float64Array(2 * time.length);
  time.forEach((at, index) => {
    const gb = (bytes[index] ?? 0) / GB;
    x.set([at, time[index + 1] ?? end], 2 * index);
    value.set([gb, gb], 2 * index);
  });
  return lineAt(t('stage %1', formatNumber(stage)), stage, x, value);
}

type Options = Required<PipelineOptions>;

const PANES: PlanPanes<PipelineOptions, PipelineReader> = [
  ['plan', PlanPane],
  ['memory', MemoryPane],
  ['schedules', SchedulesPane]
];

/** A plan of pipeline stages under what was measured, its memory, and other schedules next to it. */
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

  protected toolbar(): IPlanToolbar {
    const { env, reader } = this;
    const { options, t } = env;
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
      sliders: slidersOf(t),
      values: reader.last?.what.values ?? null
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
