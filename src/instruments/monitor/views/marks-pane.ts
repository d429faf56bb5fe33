import { COLORS, formatInteger, type IPlace, type Row } from '../../../charts';
import { parseName } from '../../../protocol/tensor-name';
import { firstBadWords } from '../../../views/shared/change-words';
import type { IPointed } from '../../../store/run-link';
import type { IMark, IMoved, INote, Loaded } from '../../../views/shared/content';
import { rangeOf, type ILinkedMarks, type IStepAxis } from '../../../views/shared/links';
import { hold, moveOf, axisParams, wide } from '../../../views/shared/scale';
import { emptyState, nothingYet, snippetState, type IState } from '../../../views/shared/states';
import { said } from '../../../views/shared/said';
import type { ITip } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import { followersOf, follows, reachedFrom, type IAlarm, type Severity } from '../store/alarms';
import {
  weight,
  type IHealthFacts,
  HealthPane,
  countWords,
  firstCaption,
  firstTitle,
  severityWords,
  whereWords
} from './health-facts';

/** What judges a training, in its script. */
const SNIPPET = 'monitor = megalens.monitor(model, optimizer)';

/** How alarms of each severity are marked. */
const LOOKS: Readonly<Record<Severity, { readonly color: string; readonly shape: string }>> = {
  critical: { color: COLORS.severity.critical, shape: 'triangle-up' },
  warning: { color: COLORS.severity.warning, shape: 'diamond' },
  note: { color: COLORS.severity.note, shape: 'circle' }
};

/** Columns in which alarms of one layer become one mark. */
const COLUMNS = 300;

/** Alarms that are drawn as one mark. */
interface IPoint {
  readonly x: number;
  /** Its row; -1 is outside of the layers. */
  readonly layer: number;
  /** In their order. */
  readonly alarms: readonly IAlarm[];
}

/** Whether the training is healthy, in words, and its alarms as marks over step × layer. */
export class MarksPane extends HealthPane {
  override readonly zooms = { axes: 'x', least: 4 } as const;

  protected show(facts: IHealthFacts): Loaded {
    const { t } = this;
    const { alarms, chosen, first, hidden } = facts;
    if (chosen.length === 0) {
      this._points = [];
      return { state: this._nothing(facts) };
    }
    const steps = wide([chosen[0]?.step ?? 0, chosen[chosen.length - 1]?.step ?? 0]);
    this._steps = [...new Set(chosen.map(each => each.step))];
    this._shown = facts.shown;
    this._points = pointsOf(chosen, (steps[1] - steps[0]) / COLUMNS);
    const layers = [...new Set(this._points.map(each => each.layer))].sort((a, b) => a - b);
    const [top, bottom] = [layers[0] ?? 0, layers[layers.length - 1] ?? 0];
    const air = (steps[1] - steps[0]) * 0.02;
    const extent = {
      x: [steps[0] - air, steps[1] + air] as const,
      y: [top - 0.6, bottom + 0.6] as const
    };
    const rowNames = Object.fromEntries(layers.map(each => [each, this._rowName(each)]));
    const counts = countWords(chosen, t);
    const clear: INote[] =
      chosen.length < alarms.length
        ? [
            {
              text: t(
                '%1 of %2 alarms are chosen.',
                formatInteger(chosen.length),
                formatInteger(alarms.length)
              ),
              action: {
                label: t('Show all'),
                run: () => this.pick({ severity: 'all', rule: null, steps: null })
              }
            }
          ]
        : [];
    return {
      content: {
        title: first ? firstTitle(first, t) : this._healthy(facts),
        caption: [
          ...(first
            ? firstCaption(first, reachedFrom(alarms, first), followersOf(alarms, first).length, t)
            : []),
          ...(hidden.length > 0
            ? [t('Muted alarms that are not shown: %1.', formatInteger(hidden.length))]
            : []),
          ...(this._points.length < chosen.length
            ? [t('Alarms that lie close together are one mark, the larger the more they are.')]
            : [])
        ],
        summary: this._when(counts, t),
        notes: clear,
        extent,
        recipe: {
          template: 'alarm-marks',
          texts: { xTitle: t('step'), yTitle: t('layer') },
          params: {
            ...axisParams(extent.x, extent.y),
            rowNames,
            rowTicks: layers
          },
          // The gravest lie on top.
          datasets: {
            marks: [...this._points]
              .sort((a, b) => weight(worstOf(b)) - weight(worstOf(a)))
              .map(each => this._row(each))
          },
          height: Math.min(300, Math.max(70, (bottom - top + 1) * 18))
        }
      }
    };
  }

  override probe(point: IPlace): IMark | null {
    const [from = 0, to = 1] = [this._steps[0], this._steps.at(-1)];
    const reach = Math.max(1, (to - from) / 40);
    const near = this._points
      .filter(each => each.layer === Math.round(point.y) && Math.abs(each.x - point.x) <= reach)
      .sort((a, b) => Math.abs(a.x - point.x) - Math.abs(b.x - point.x));
    return near[0] ? markOf(near[0]) : null;
  }

  override tipOf(mark: IMark): ITip | null {
    const { t } = this;
    const point = this._at(mark);
    const [alarm] = point?.alarms ?? [];
    if (!point || !alarm) {
      return null;
    }
    const where = whereWords(alarm, t);
    const more = point.alarms.length - 1;
    return {
      heading: t('step %1, %2', formatInteger(alarm.step), this._rowName(point.layer)),
      lines: [
        {
          name: follows(alarm) ? t('followed') : severityWords(alarm.severity, t),
          value: alarm.rule,
          color: LOOKS[alarm.severity].color
        },
        { name: alarm.name, value: said(alarm.sentence, this.t) },
        ...(where === '' ? [] : [{ name: t('where'), value: where }]),
        ...(more > 0 ? [{ name: t('more here'), value: formatInteger(more) }] : [])
      ]
    };
  }

  override move(key: string): IMoved | null {
    const by = moveOf(key);
    const points = this._points;
    if (by === undefined || points.length === 0) {
      return null;
    }
    const way = by[0] === 0 ? by[1] : by[0];
    this._cursor = hold(this._cursor < 0 ? 0 : this._cursor + way, points.length);
    const point = points[this._cursor];
    const [alarm] = point?.alarms ?? [];
    if (!point || !alarm) {
      return null;
    }
    const words = said(alarm.sentence, this.t);
    const sentence = this.t('step %1, %2: %3', formatInteger(alarm.step), alarm.name, words);
    return { said: sentence, mark: markOf(point), ...(key === 'copy' ? { copy: words } : {}) };
  }

  /** The lines of that tensor are drawn below. */
  override clicked(mark: IMark): void {
    const [alarm] = this._at(mark)?.alarms ?? [];
    if (alarm) {
      this.pick({ name: alarm.name, step: alarm.step });
    }
  }

  override pinned(): IMark | null {
    const { _shown: shown } = this;
    const point = shown && this._points.find(each => each.alarms.includes(shown));
    return point ? markOf(point) : null;
  }

  override insight(): IMark | null {
    const [point] = this._points;
    this._cursor = 0;
    return point ? markOf(point) : null;
  }

  override pointedBy(mark: IMark): IPointed {
    const point = this._at(mark);
    return { step: point?.alarms[0]?.step ?? null, layer: point && point.layer >= 0 ? point.layer : null };
  }

  override marksOf({ step }: IPointed): ILinkedMarks {
    return { marks: step === null ? [] : [{ facet: null, x: [step, step], y: null }] };
  }

  override stepAxis(): IStepAxis {
    return {
      stepsIn: ([from, to]) => rangeOf(this._steps.filter(step => step >= from && step <= to)),
      spanOf: steps => steps
    };
  }

  private _when(counts: string, t: Translate): string {
    const [first = 0, last = first] = [this._steps[0], this._steps.at(-1)];
    return first === last
      ? t('%1, at step %2.', counts, formatInteger(first))
      : t('%1, steps %2 to %3.', counts, formatInteger(first), formatInteger(last));
  }

  private _at(mark: IMark): IPoint | undefined {
    const [x, y] = [(mark.x[0] + mark.x[1]) / 2, mark.y ? (mark.y[0] + mark.y[1]) / 2 : NaN];
    return this._points.find(each => each.layer === Math.round(y) && Math.abs(each.x - x) < 1e-6);
  }

  private _row(point: IPoint): Row {
    const { x, layer, alarms } = point;
    const [first] = alarms;
    const text = `${formatInteger(first?.step ?? 0)}: ${first?.rule ?? ''}`;
    return {
      ...LOOKS[worstOf(point)],
      x,
      y: layer,
      size: Math.min(220, 40 + 30 * Math.log2(alarms.length)),
      text
    };
  }

  private _rowName(layer: number): string {
    return layer < 0 ? this.t('no layer') : String(layer);
  }

  private _healthy({ judged, hidden }: IHealthFacts): string {
    const words =
      judged === null ? this.t('Healthy: no alarm') : this.t('Healthy for %1 steps', formatInteger(judged));
    return hidden.length > 0 ? this.t('%1, muted alarms left out', words) : words;
  }

  /** Why there are no marks. */
  private _nothing(facts: IHealthFacts): IState {
    const { isJudged, alarms, bad } = facts;
    const { actions, t } = this;
    if (alarms.length > 0) {
      return emptyState(t('No alarm is of that kind.'), t('Show all'), () =>
        this.pick({ severity: 'all', rule: null, steps: null })
      );
    }
    const what = firstBadWords(bad ? [{ step: bad.step, where: bad.name }] : [], t);
    return isJudged
      ? nothingYet(what[0] ?? `${this._healthy(facts)}.`, actions, t)
      : snippetState(
          [...what, t('No alarms are judged. In the training script:')].join(' '),
          SNIPPET,
          actions,
          t
        );
  }

  private _points: readonly IPoint[] = [];
  private _steps: readonly number[] = [];
  private _shown: IAlarm | null = null;
  private _cursor = -1;
}

const markOf = ({ x, layer }: IPoint): IMark => ({ facet: null, x: [x, x], y: [layer - 0.4, layer + 0.4] });

/** The gravest severity of a point's alarms. */
const worstOf = ({ alarms }: IPoint): Severity =>
  alarms.reduce<Severity>(
    (least, { severity }) => (weight(severity) < weight(least) ? severity : least),
    'note'
  );

/** Alarms of a layer that lie less than a column apart as one point, by their first steps. */
function pointsOf(alarms: readonly IAlarm[], column: number): IPoint[] {
  const points = new Map<string, IAlarm[]>();
  for (const alarm of alarms) {
    const key = `${parseName(alarm.name).layer ?? -1} ${column < 1 ? alarm.step : Math.floor(alarm.step / column)}`;
    const group = points.get(key) ?? [];
    group.push(alarm);
    points.set(key, group);
  }
  return [...points].map(([key, group]) => ({
    x: group[0]?.step ?? 0,
    layer: Number(key.split(' ')[0]),
    alarms: group
  }));
}
