import { quantileOf, spanOfBin, type IHistograms, type IStepCounts } from '../../aggregate';
import { formatInteger, formatNumber, type IRecipe } from '../../charts';
import type { DistributionOptions } from '../../protocol/views.generated';
import { StepAxis } from '../kits/lines/step-axis';
import { MatrixPicture, type ICellWords } from '../kits/matrix/matrix-picture';
import type { IContent } from '../shared/content';
import type { IGridCell } from '../shared/scale';
import { tipSaid, type ITip } from '../shared/table';
import {
  distributionMap,
  distributionQuantiles,
  distributionRidges,
  shareName,
  SHARES,
  sharesOf,
  type IDistributionWish,
  type IDrawnStep
} from './distribution-recipe';

type Kind = Required<DistributionOptions>['kind'];

/** Histograms over steps: cells of a map, or columns of lines and ridges. */
export class DistributionPicture extends MatrixPicture {
  protected override readonly snaps = true;
  protected override readonly repaints = false;

  /** What is drawn; columns, but for ridges, over whose columns all of them lie. */
  steps: readonly IDrawnStep[] = [];

  draw(
    kind: Kind,
    wish: IDistributionWish,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'printed'> & { readonly recipe: IRecipe } {
    const zero = wish.data.bins.count;
    // What was a step may be a bin now.
    this.at = kind === this._kind ? this.at : null;
    [this._kind, this._bins] = [kind, wish.data.bins];
    if (kind === 'map') {
      const { drawing, span, steps } = distributionMap(wish, this.t);
      [this.steps, this._span] = [steps, span];
      [this.firstColumn, this.firstRow] = [Infinity, span[1] - zero];
      return this.paint(drawing, isDark);
    }
    const isRidges = kind === 'ridgeline';
    const { span, steps, ...drawn } = (isRidges ? distributionRidges : distributionQuantiles)(wish, this.t);
    [this.domain, this.steps, this._span] = [null, steps, span];
    this.firstColumn = isRidges ? zero - span[0] : Infinity;
    const axis = isRidges ? null : new StepAxis(steps.map(({ step }) => step));
    const bins = Array.from({ length: span[1] - span[0] + 1 }, (_, at) => span[0] + at);
    this.plots = [{ x: drawn.extent.x, xs: axis?.steps ?? bins, half: axis ? 0 : 0.5, ys: null, axis }];
    return drawn;
  }

  protected words(cell: IGridCell): ICellWords {
    const tip = this._tip(cell);
    const said = tip ? tipSaid(tip) : '';
    return { tip, said, value: said };
  }

  binWords(bin: number): string {
    const { t } = this;
    const [low, high] = spanOfBin(this._bins, bin);
    if (low === -high) {
      return high === 0 ? t('zero') : t('smaller than %1', formatNumber(high, 3));
    }
    return !Number.isFinite(high)
      ? t('from %1', formatNumber(low, 3))
      : !Number.isFinite(low)
        ? t('to %1', formatNumber(high, 3))
        : t('%1 to %2', formatNumber(low, 3), formatNumber(high, 3));
  }

  quantileWords(of: IStepCounts, share: number): string {
    const { value, error } = quantileOf(this._bins, of, share);
    if (error === Infinity) {
      return value > 0
        ? this.t('above %1', formatNumber(value, 3))
        : this.t('below %1', formatNumber(value, 3));
    }
    return `${formatNumber(value, 4)} ± ${formatNumber(error, 2)}`;
  }

  private _tip({ column, row }: IGridCell): ITip | null {
    const { steps, t, _kind: kind, _span: span } = this;
    if (kind === 'ridgeline') {
      const bin = span[0] + column;
      const lines = steps.map(each => ({
        name: t('step %1', formatInteger(each.step)),
        value: this._shareWords(each, bin)
      }));
      return { heading: this.binWords(bin), lines };
    }
    const of = steps[column];
    if (!of) {
      return null;
    }
    const heading = t('step %1', formatInteger(Math.round(of.step)));
    const bin = span[1] - row;
    return kind === 'map'
      ? { heading, lines: [{ name: this.binWords(bin), value: this._shareWords(of, bin) }] }
      : {
          heading,
          lines: [...SHARES]
            .reverse()
            .map(share => ({ name: shareName(share, t), value: this.quantileWords(of, share) }))
        };
  }

  private _shareWords(of: IDrawnStep, bin: number): string {
    const share = formatNumber(100 * (sharesOf(of)[bin] ?? 0), 3);
    return of.greatest
      ? this.t('at most %1 %', share)
      : this.t('%1 % (%2 values)', share, formatInteger(of.counts[bin] ?? 0));
  }

  private _kind: Kind | null = null;
  private _bins: IHistograms['bins'] = { count: 0, log: false, edges: new Float64Array() };
  private _span: readonly [number, number] = [0, 0];
}
