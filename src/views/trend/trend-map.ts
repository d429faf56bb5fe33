import {
  ColorScale,
  formatFull,
  formatInteger,
  lowMagnitude,
  greatestOf,
  middleOf,
  Pictures,
  telling,
  type IColorLook,
  type IPlace,
  type IRecipe
} from '../../charts';
import type { ILayerLine } from '../../store/line-data';
import type { IPointed } from '../../store/run-link';
import { movesOf } from '../shared/moves';
import type { IContent, IMark, IMoved } from '../shared/content';
import { lockedWords } from '../shared/controls';
import { rangeOf, type ILinkedMarks, type IStepAxis } from '../shared/links';
import { besideWords, pinnedColumns } from '../shared/pinned-step';
import { hold, moveOf, nearestIndex, colorStrip, extentOf } from '../shared/scale';
import type { ITip } from '../shared/table';
import type { Translate } from '../shared/translate';
import { layerName } from '../shared/layers';

/** Most columns that a layer × step picture has. */
const MOST_COLUMNS = 4096;

export interface ITrendRequest {
  readonly series: readonly ILayerLine[];
  readonly transform: 'linear' | 'log';
  /** Of the colours. */
  readonly look: IColorLook;
  readonly statistic: string;
  /** Newest step of which rows are gone: up to there a layer's row stands for those that followed it. */
  readonly filledTo: number | null;
}

/** A trend's chart, with what its caption must add. */
export interface ITrendPicture {
  readonly recipe: IRecipe;
  readonly extent: IContent['extent'];
  readonly caption: readonly string[];
  /** What the colours span. */
  readonly domain: readonly [number, number];
  /** Whether the colours are of both signs. */
  readonly signed: boolean;
  /** Steps that one column stands for. */
  readonly spacing: number;
}

/** A trend as layer × step: what is drawn, what is under the pointer, and where a key goes. */
export class TrendMap {
  constructor(private readonly _t: Translate) {}

  series: readonly ILayerLine[] = [];

  /** What the colours span; null before anything was drawn. */
  domain: readonly [number, number] | null = null;

  /** Every step that some layer has, ascending. */
  steps: readonly number[] = [];

  /** The keyboard's cursor, by layer and step. */
  at: { readonly step: number; readonly layer: number } | null = null;

  take(wish: ITrendRequest): ITrendPicture {
    const picture = trendHeatmap(wish, this._t);
    this.series = wish.series;
    this.steps = stepsOf(wish.series);
    this._spacing = picture.spacing;
    this._statistic = wish.statistic;
    this.domain = picture.domain;
    return picture;
  }

  /** The chart of a trend, without taking it. */
  recipe(wish: ITrendRequest): IRecipe {
    return trendHeatmap(wish, this._t).recipe;
  }

  markOf(step: number, layer: number): IMark {
    const half = this._spacing / 2;
    return { facet: null, x: [step - half, step + half], y: [layer - 0.5, layer + 0.5] };
  }

  probe(point: IPlace): IMark | null {
    const step = this.steps[nearestIndex(this.steps, point.x)];
    return step === undefined ? null : this.markOf(step, Math.round(point.y));
  }

  /** @param pinned - Step whose value stands beside; null where there is none. */
  tipOf(mark: IMark, pinned: number | null = null): ITip | null {
    const { step, layer } = this.pointedBy(mark);
    const [series, value] = this._valueAt(layer ?? NaN, step ?? NaN);
    const nonFinite = series?.nonFinite[series.steps.indexOf(step ?? NaN)] ?? 0;
    const extra = nonFinite > 0 ? this._t(' (%1 not finite)', formatInteger(nonFinite)) : '';
    const number = (at: number | null): number => series?.values[series.steps.indexOf(at ?? NaN)] ?? NaN;
    const isBeside = pinned !== null && pinned !== step;
    return value === null
      ? null
      : {
          heading: this._t('step %1', formatInteger(step ?? NaN)),
          ...(isBeside && { columns: pinnedColumns(pinned, this._t) }),
          lines: [
            {
              name: layerName(layer ?? NaN, this._t),
              value: value + extra,
              ...(isBeside && { beside: besideWords(number(step), number(pinned), this._t) })
            }
          ]
        };
  }

  move(key: string): IMoved | null {
    const by = moveOf(key);
    if (by === undefined || this.steps.length === 0) {
      return null;
    }
    const { at: before, steps, series, _t: t } = this;
    const from = before ? nearestIndex(steps, before.step) : steps.length - 1;
    const row = series.findIndex(each => each.layer === before?.layer);
    const step = steps[hold(from + (before ? by[0] : 0), steps.length)] ?? 0;
    const layer = series[hold((row < 0 ? 0 : row) + (before ? by[1] : 0), series.length)]?.layer ?? 0;
    this.at = { step, layer };
    const value = this._valueAt(layer, step)[1] ?? t('no value');
    const said = t('step %1, %2: %3 %4', formatInteger(step), layerName(layer, t), this._statistic, value);
    const mark = this.markOf(step, layer);
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  /** Put the cursor at the step nearest to one, and return its mark; null where there is none. */
  goTo(wanted: number): IMark | null {
    const step = this.steps[nearestIndex(this.steps, wanted)];
    const layer = this.at?.layer ?? this.series[0]?.layer;
    if (step === undefined || layer === undefined) {
      return null;
    }
    this.at = { step, layer };
    return this.markOf(step, layer);
  }

  /** Put the cursor where a layer moved most, and return its mark; null where none moved. */
  insight(): IMark | null {
    const found = movesOf(this.series)?.strongest;
    if (!found) {
      return null;
    }
    this.at = { step: found.last, layer: found.layer };
    return this.markOf(found.last, found.layer);
  }

  pointedBy(mark: IMark): IPointed {
    return { step: (mark.x[0] + mark.x[1]) / 2, layer: mark.y === null ? null : mark.y[0] + 0.5 };
  }

  marksOf({ layer, step }: IPointed): ILinkedMarks {
    const [first = 0, last = 0] = [this.steps[0], this.steps[this.steps.length - 1]];
    const half = this._spacing / 2;
    const row: IMark[] = this.series.some(each => each.layer === layer)
      ? [{ facet: null, x: [first - half, last + half], y: [Number(layer) - 0.5, Number(layer) + 0.5] }]
      : [];
    return {
      marks: [...(step === null ? [] : [{ facet: null, x: [step, step] as const, y: null }]), ...row]
    };
  }

  stepAxis(): IStepAxis {
    const half = this._spacing / 2;
    return {
      stepsIn: ([from, to]) => rangeOf(this.steps.filter(step => step >= from && step <= to)),
      spanOf: ([first, last]) => [first - half, last + half]
    };
  }

  private _valueAt(layer: number, step: number): [ILayerLine | undefined, string | null] {
    const series = this.series.find(each => each.layer === layer);
    const at = series?.steps.indexOf(step) ?? -1;
    return [series, at < 0 ? null : formatFull(Number((series?.values[at] ?? NaN).toPrecision(9)))];
  }

  private _spacing = 1;
  private _statistic = '';
}

const stepsOf = (series: readonly ILayerLine[]): number[] =>
  [...new Set(series.flatMap(each => [...each.steps]))].sort((a, b) => a - b);

const ends = (values: readonly number[]): [number, number] => [
  values[0] ?? 0,
  values[values.length - 1] ?? 0
];

/** Return the least distance of two neighbouring steps; 1 when there is only one. */
function smallestGap(steps: readonly number[]): number {
  const gaps = steps.slice(1).map((step, at) => step - (steps[at] ?? 0));
  return gaps.reduce((least, gap) => Math.min(least, gap), gaps[0] ?? 1);
}

/** Let each cell of a row stand for the missing ones that follow it, up to a column. */
function fill(values: Float64Array, missing: Uint8Array, columns: number, upTo: number): void {
  for (let row = 0; row < values.length; row += columns) {
    for (let cell = row + 1; cell <= row + upTo; cell++) {
      if (missing[cell] === 1 && missing[cell - 1] === 0) {
        values[cell] = values[cell - 1] ?? NaN;
        missing[cell] = 0;
      }
    }
  }
}

/** Return the chart as layer × step, drawn as one picture. Steps and layers without a row stay blank. */
function trendHeatmap(wish: ITrendRequest, t: Translate): ITrendPicture {
  const { series, transform, statistic, filledTo = null } = wish;
  const steps = stepsOf(series);
  const [first, last] = ends(steps);
  const [top, bottom] = ends(series.map(each => each.layer));
  const caption: string[] = [];
  let spacing = smallestGap(steps);
  if ((last - first) / spacing + 1 > MOST_COLUMNS) {
    spacing = (last - first) / (MOST_COLUMNS - 1);
    caption.push(
      t(
        'One column stands for about %1 steps; of their values the one farthest from the middle of the layer is drawn.',
        formatInteger(spacing)
      )
    );
  }
  const columns = Math.round((last - first) / spacing) + 1;
  const rows = bottom - top + 1;
  const values = new Float64Array(columns * rows);
  const missing = new Uint8Array(columns * rows).fill(1);
  const greatest = Math.max(0, ...series.map(each => greatestOf(each.values) || 0));
  for (const each of series) {
    const middle = middleOf(each.values);
    each.steps.forEach((step, at) => {
      const cell = (each.layer - top) * columns + Math.round((step - first) / spacing);
      const value = each.values[at] ?? NaN;
      const says = (of: number): number => telling(of, middle, greatest);
      // A spike stays, and so does what is not finite.
      if (missing[cell] === 1 || says(value) > says(values[cell] ?? NaN)) {
        values[cell] = value;
      }
      missing[cell] = 0;
    });
  }
  if (filledTo !== null) {
    fill(values, missing, columns, Math.round((Math.min(filledTo, last) - first) / spacing));
    caption.push(
      t(
        'Up to step %1 rows are thinned out: each is drawn up to the next one that is kept.',
        formatInteger(filledTo)
      )
    );
  }
  const low = transform === 'log' ? lowMagnitude(series.map(each => each.values)) : NaN;
  const drawn = series.map(each => each.values);
  const scale = new ColorScale(extentOf(drawn), transform, low, wish.look);
  caption.push(...lockedWords(wish.look.range ?? null, drawn, t));
  const unfinished = series.some(each => each.values.some(value => !Number.isFinite(value)));
  const strip = colorStrip(scale, unfinished, t);
  const [x0, x1, y0, y1] = [first - spacing / 2, last + spacing / 2, top - 0.5, bottom + 0.5];
  const picture = new Pictures().draw(0, { rows, columns, values, missing }, scale);
  return {
    domain: scale.domain,
    signed: scale.signed,
    extent: { x: [x0, x1], y: [y0, y1] },
    spacing,
    caption,
    recipe: {
      template: 'trend-heatmap',
      texts: { xTitle: t('step'), yTitle: t('layer'), legendTitle: statistic },
      params: { x0, x1, y0, y1, ...strip.params },
      datasets: { pictures: [{ ...picture, x: x0, x2: x1, y: y0, y2: y1 }], legend: strip.rows },
      height: Math.min(420, Math.max(160, rows * 14))
    }
  };
}
