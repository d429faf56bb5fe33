import { capital } from '../../../../views/shared/describe';
import { formatInteger, formatNumber } from '../../../../charts';
import type { IContent, IMark, INote, Loaded } from '../../../../views/shared/content';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { retryAction } from '../../../../views/shared/states';
import type { EffectsOptions } from '../../../../protocol/views.generated';
import { layerName } from '../../../../views/shared/layers';
import { type ILine, lineAt } from '../../../../views/kits/lines/line';
import { wide } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import { isUnderWay, type IGeneration } from '../../store/generations';
import { fittedToken } from '../shared/token-axis';
import {
  EffectsPane,
  type IEffectsRead,
  layersOf,
  settingWords,
  type SweepOver,
  pointRequest,
  requestCode
} from './effects-subject';
import type { ISweep, ISweepPoint, ISweepSeries, Measure } from './positions-picture';
import { sequencesIn, sweepSeries, sweepOf, measureWords } from './positions-picture';
import { middleOf, SeriesPicture } from './series-picture';

/** Pixels of a setting under the axis. */
const LABEL = 90;
/** Layers whose values a tip lists. */
const MOST_LISTED = 12;

/** A measure over the points of a sweep: mean and range over sequences; of distances a line per layer. */
class SweepPicture extends SeriesPicture {
  constructor(
    env: IViewEnvironment<EffectsOptions>,
    protected override readonly pressed: (mark: IMark) => void
  ) {
    super(env.t, env);
  }

  /**
   * Draw a sweep.
   * @param over - What it sets; null where that is not known.
   */
  draw(
    sweep: ISweep,
    over: SweepOver | null,
    { measure, transform }: Pick<Required<EffectsOptions>, 'measure' | 'transform'>,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { t } = this;
    const isLog = transform === 'log' && sweep.isNumeric && sweep.points.some(({ value }) => value > 0);
    const drawn = sweep.points.flatMap((point, at) =>
      isLog && !(point.value > 0)
        ? []
        : [{ point, at, x: isLog ? Math.log10(point.value) : sweep.isNumeric ? point.value : at }]
    );
    this._points = new Map(drawn.map(({ point, x }) => [x, point]));
    this._series = sweepSeries(sweep, measure);
    this._sweep = sweep;
    this._over = over;
    this._measure = measure;
    const pick = (column: Float64Array): number[] => drawn.map(({ at }) => column[at] ?? NaN);
    const xs = drawn.map(({ x }) => x);
    const lines = this._series.map(({ layer, mean }) =>
      lineAt(layer === null ? t('mean and range') : layerName(layer, t), layer, xs, pick(mean))
    );
    const air = ((xs.at(-1) ?? 0) - (xs[0] ?? 0)) * 0.03 || 0.5;
    const x = wide([(xs[0] ?? 0) - air, (xs.at(-1) ?? 0) + air]);
    const isOneLine = this._series.length === 1 && sequencesIn(sweep) > 1;
    return this.take(
      {
        lines,
        // The ranges of many layers would lie over one another.
        ...(isOneLine
          ? {
              ranges: this._series.map(({ low, high }) => ({
                low: Float64Array.from(pick(low)),
                high: Float64Array.from(pick(high))
              }))
            }
          : {}),
        transform: 'linear',
        texts: {
          xTitle: overWords(over, isLog, t),
          yTitle: measure === 'changed' ? measureName(measure, t) : measureWords(measure, t),
          colorTitle: measure === 'distance' ? t('layer') : t('sequences: %1', sequencesIn(sweep)),
          xTicks: 'labelAt',
          xLabel: 'labels[indexof(labelAt, datum.value)]'
        },
        params: {
          labelAt: xs,
          labels: drawn.map(({ point }) =>
            Number.isFinite(point.value) ? formatNumber(point.value) : fittedToken(point.setting, LABEL).text
          ),
          mostTicks: 1000,
          leastStep: 0
        },
        rules: [],
        x,
        shown: x,
        half: 0,
        nameOf: at => this._nameOf(at),
        tipOf: (at, color) => this._lines(at, lines, color),
        valueOf: (line, at) => this._valueWords(this._series[lines.indexOf(line)], at)
      },
      isDark
    );
  }

  /** The point of a mark; undefined where there is none. */
  pointOf(mark: IMark): ISweepPoint | undefined {
    return this._points.get(middleOf(mark));
  }

  /** The mark of a point; null where it is not drawn. */
  markOfPoint(number: number): IMark | null {
    const found = [...this._points].find(([, { point }]) => point === number);
    return found ? this.markAt(found[0], NaN) : null;
  }

  /** Settings that have no place on the axis, being 0 or less on a logarithmic one. */
  get left(): number {
    return (this._sweep?.points.length ?? 0) - this._points.size;
  }

  /** Say where the measure is largest; empty where nothing is known. */
  get summary(): string {
    const { t } = this;
    const peak = this._peak();
    if (peak === null) {
      return this._measure === 'divergence' && this._points.size > 0
        ? t('The written texts are the same at every point.')
        : '';
    }
    const { series, x } = peak;
    const where = series.layer === null ? '' : t(' in %1', layerName(series.layer, t));
    return this._measure === 'divergence'
      ? t('The texts part earliest with %1: %2.', this._nameOf(x), this._valueWords(series, x))
      : t(
          '%1 is largest with %2%3: %4.',
          capital(measureName(this._measure, t)),
          this._nameOf(x),
          where,
          this._valueWords(series, x)
        );
  }

  get insight(): IMark | null {
    const peak = this._peak();
    return peak && this.goTo(peak.x);
  }

  private _peak(): { series: ISweepSeries; x: number } | null {
    const sign = this._measure === 'divergence' ? -1 : 1;
    const all = this._series.flatMap(series =>
      [...this._points].map(([x, point]) => ({
        series,
        x,
        value: sign * (series.mean[this._indexOf(point)] ?? NaN)
      }))
    );
    return all
      .filter(({ value }) => Number.isFinite(value))
      .reduce<(typeof all)[number] | null>(
        (best, each) => (best && best.value >= each.value ? best : each),
        null
      );
  }

  private _lines(x: number, lines: readonly ILine[], color: (line: ILine) => string): ITip['lines'] {
    const listed = lines.slice(0, MOST_LISTED).map((line, at) => ({
      name: line.name,
      value: this._valueWords(this._series[at], x),
      color: color(line)
    }));
    return lines.length > MOST_LISTED
      ? [...listed, { name: this.t('%1 more', formatInteger(lines.length - MOST_LISTED)), value: '' }]
      : listed;
  }

  private _valueWords(series: ISweepSeries | undefined, x: number): string {
    const { t } = this;
    const point = this._points.get(x);
    const at = point ? this._indexOf(point) : -1;
    const [mean, count] = [series?.mean[at] ?? NaN, series?.count[at] ?? 0];
    if (this._measure === 'divergence') {
      const all = this._sweep ? sequencesIn(this._sweep) : 0;
      return count === 0
        ? t('the text is the same')
        : all === 1
          ? t('position %1', formatInteger(mean))
          : t('position %1 on average, %2 of %3 texts differ', formatNumber(mean, 3), count, all);
    }
    const unit = this._measure === 'kl' ? t('%1 nats', formatNumber(mean, 3)) : formatNumber(mean, 3);
    return count > 1
      ? t(
          '%1 (%2 to %3 over %4 sequences)',
          unit,
          formatNumber(series?.low[at] ?? NaN, 3),
          formatNumber(series?.high[at] ?? NaN, 3),
          count
        )
      : unit;
  }

  private _nameOf(x: number): string {
    const { setting = '', value = NaN } = this._points.get(x) ?? {};
    return settingWords(this._over, setting, value, this.t);
  }

  private _indexOf(point: ISweepPoint): number {
    return this._sweep?.points.indexOf(point) ?? -1;
  }

  private _points: ReadonlyMap<number, ISweepPoint> = new Map();
  private _series: readonly ISweepSeries[] = [];
  private _sweep: ISweep | null = null;
  private _over: SweepOver | null = null;
  private _measure: Measure = 'kl';
}

/** Name what a sweep sets, as its axis does. */
function overWords(over: SweepOver | null, isLog: boolean, t: Translate): string {
  const words = {
    coefficient: t('coefficient of the perturbation'),
    layers: t('layers that are perturbed'),
    site: t('site that is perturbed')
  };
  const name = over === null ? t('setting') : words[over];
  return isLog ? t('%1, logarithmic', name) : name;
}

function measureName(measure: Measure, t: Translate): string {
  const words: Readonly<Record<Measure, string>> = {
    kl: t('mean KL divergence'),
    changed: t('share of changed best next tokens'),
    distance: t('relative distance of hidden states'),
    divergence: t('first position at which the text differs')
  };
  return words[measure];
}

/** A measure over the points of a sweep, how far the sweep is, and what runs one point of it alone. */
export class SweepPane extends EffectsPane {
  async load(read: IEffectsRead): Promise<Loaded> {
    const { options, isDark, t } = this.env;
    const { generation } = read;
    const sweep = sweepOf(read.effects);
    if (sweep.points.length === 0) {
      return { state: this.otherEffects(read, ['positions']) };
    }
    if (options.measure === 'distance' && layersOf(sweep.rows).length === 0) {
      return { state: this.noDistances() };
    }
    const { sweep: requested } = generation.request ?? {};
    const total = requested?.values.length ?? sweep.points.length;
    const picture = this._picture.draw(sweep, requested?.over ?? null, options, isDark);
    const { left, summary } = this._picture;
    const isPartial = sweep.points.length < total && !isUnderWay(generation);
    return {
      content: {
        ...picture,
        title: this.title(read),
        caption: this.caption(read, [
          ...(isPartial ? [this._doneWords(sweep, total)] : []),
          ...(left > 0
            ? [t('Settings of 0 or less have no place on a logarithmic axis, left out: %1.', left)]
            : [])
        ]),
        summary,
        notes: [
          ...(isUnderWay(generation) ? [this._progress(generation, sweep, total)] : []),
          ...this._pointNote(generation, sweep)
        ]
      }
    };
  }

  get insight(): IMark | null {
    return this._picture.insight;
  }

  protected override get drawn(): SweepPicture {
    return this._picture;
  }

  /** The setting of the point is shown, with what runs it alone; or not any more. */
  override clicked(mark: IMark): void {
    const point = this._picture.pointOf(mark)?.point;
    if (point !== undefined) {
      this._choose(point === this._chosen ? null : point);
    }
  }

  pinned(): IMark | null {
    return this._chosen === null ? null : this._picture.markOfPoint(this._chosen);
  }

  private _choose(point: number | null): void {
    this._chosen = point;
    this.env.refresh(true);
  }

  private _doneWords({ points }: ISweep, total: number): string {
    const { t } = this.env;
    return t('%1 of %2 points are done.', formatInteger(points.length), formatInteger(total));
  }

  /** How far a sweep is, and a way to end it. */
  private _progress({ generation }: IGeneration, sweep: ISweep, total: number): INote {
    const { source, env } = this;
    const { actions, t } = env;
    const cancel = (): void => {
      source.cancelGeneration?.(generation).catch(reason => env.fail(reason));
    };
    return {
      text: this._doneWords(sweep, total),
      action: source.cancelGeneration ? { label: t('Cancel'), run: cancel } : retryAction(actions, t)
    };
  }

  private _pointNote({ request }: IGeneration, { points }: ISweep): INote[] {
    const { actions, t } = this.env;
    const point = points.find(each => each.point === this._chosen);
    if (!point) {
      return [];
    }
    const name = settingWords(request?.sweep?.over ?? null, point.setting, point.value, t);
    const alone = pointRequest(request, point.setting, point.value);
    const code = alone && requestCode(alone);
    return [
      code === null
        ? { text: name, action: { label: t('Close'), run: () => this._choose(null) } }
        : {
            text: t('%1: %2', name, code),
            action: { label: t('Copy as code'), run: () => void actions.copy(code) }
          }
    ];
  }

  private readonly _picture = new SweepPicture(this.env, mark => this.clicked(mark));
  private _chosen: number | null = null;
}
