import {
  ColorScale,
  formatFull,
  formatInteger,
  lowMagnitude,
  type IColorLook,
  type IRecipe
} from '../../charts';
import type { ILayerLine } from '../../store/line-data';
import { StepAxis } from '../kits/lines/step-axis';
import { MatrixPicture, type ICellWords } from '../kits/matrix/matrix-picture';
import { cellsOverSteps, fillUpTo } from '../kits/matrix/over-steps';
import type { IContent, IMark } from '../shared/content';
import { lockedWords } from '../shared/controls';
import { layerName } from '../shared/layers';
import { movesOf } from '../shared/moves';
import { extentOf, type IGridCell } from '../shared/scale';

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
export interface ITrendPicture extends Pick<IContent, 'caption' | 'extent' | 'printed'> {
  readonly recipe: IRecipe;
}

/** A trend as layer × step. Steps and layers without a row stay blank. */
export class TrendMap extends MatrixPicture {
  protected override firstColumn = Infinity;
  protected override readonly snaps = true;
  protected override readonly repaints = false;

  series: readonly ILayerLine[] = [];

  take({ series, transform, look, statistic, filledTo }: ITrendRequest): ITrendPicture {
    this.series = series;
    this._statistic = statistic;
    const [top, bottom] = [series[0]?.layer ?? 0, series[series.length - 1]?.layer ?? 0];
    const rows = bottom - top + 1;
    const cells = cellsOverSteps(
      Array.from({ length: rows }, (_, row) => series.find(each => each.layer === top + row))
    );
    this._steps = cells.steps;
    if (filledTo !== null) {
      fillUpTo(cells, filledTo);
    }
    const drawn = series.map(each => each.values);
    const low = transform === 'log' ? lowMagnitude(drawn) : NaN;
    const { t } = this;
    const picture = this.paint(
      {
        cells,
        scaleOf: dark => new ColorScale(extentOf(drawn), transform, low, { ...look, dark }),
        template: 'trend-heatmap',
        texts: { xTitle: t('step'), yTitle: t('layer'), legendTitle: statistic },
        x: cells.x,
        y: [top - 0.5, bottom + 0.5],
        xs: cells.steps,
        ys: series.map(({ layer }) => layer),
        width: cells.spacing,
        axis: new StepAxis(cells.steps),
        height: Math.min(420, Math.max(160, rows * 14))
      },
      look.dark ?? false
    );
    return {
      ...picture,
      caption: [
        ...(cells.merged
          ? [
              t(
                'One column stands for about %1 steps; of their values the one farthest from the middle of the layer is drawn.',
                formatInteger(cells.spacing)
              )
            ]
          : []),
        ...(filledTo === null
          ? []
          : [
              t(
                'Up to step %1 rows are thinned out: each is drawn up to the next one that is kept.',
                formatInteger(filledTo)
              )
            ]),
        ...lockedWords(look.range ?? null, drawn, t)
      ]
    };
  }

  /** Put the cursor where a layer moved most, and return its mark; null where none moved. */
  insight(): IMark | null {
    const found = movesOf(this.series)?.strongest;
    return found ? this.showAt(found.last, found.layer) : null;
  }

  protected words({ column, row }: IGridCell): ICellWords {
    const { series, t, _steps: steps } = this;
    const of = series[row];
    const step = steps[column] ?? NaN;
    const at = of?.steps.indexOf(step) ?? -1;
    const [where, when] = [layerName(of?.layer ?? NaN, t), formatInteger(step)];
    const value = at < 0 ? t('no value') : formatFull(Number((of?.values[at] ?? NaN).toPrecision(9)));
    const nonFinite = of?.nonFinite[at] ?? 0;
    const extra = nonFinite > 0 ? t(' (%1 not finite)', formatInteger(nonFinite)) : '';
    return {
      tip: at < 0 ? null : { heading: t('step %1', when), lines: [{ name: where, value: value + extra }] },
      said: t('step %1, %2: %3 %4', when, where, this._statistic, value),
      value
    };
  }

  protected override layerOf(row: number): number | null {
    return this.series[row]?.layer ?? null;
  }

  protected override compared({ column, row }: IGridCell, pinned: number): readonly [number, number] {
    const { steps, values } = this.series[row] ?? {};
    const valueAt = (step: number): number => values?.[steps?.indexOf(step) ?? -1] ?? NaN;
    return [valueAt(this._steps[column] ?? NaN), valueAt(pinned)];
  }

  private _steps: readonly number[] = [];
  private _statistic = '';
}
