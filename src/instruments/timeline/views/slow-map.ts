import { ColorScale, formatInteger, formatNumber, type IRecipe } from '../../../charts';
import { MatrixPicture, type ICellWords } from '../../../views/kits/matrix/matrix-picture';
import type { IContent, IMark } from '../../../views/shared/content';
import { labelledRows } from '../../../views/shared/row-places';
import { extentOf, type IGridCell } from '../../../views/shared/scale';
import type { ITimelineAnswer } from '../client/timeline-api';
import { laneWords } from './lanes';

const MOST_COLUMNS = 1000;
const ROW = { each: 16, least: 60, most: 900, label: 13 };

/** How much longer each rank computes than the ranks of its stage, rank × step; columns show the slowest. */
export class SlowMap extends MatrixPicture {
  draw(
    { lanes, ranksThere, slow }: ITimelineAnswer,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'printed'> & { readonly recipe: IRecipe } {
    const [first, last] = [slow.steps[0] ?? 0, slow.steps.at(-1) ?? slow.steps[0] ?? 0];
    const width = Math.max(1, Math.ceil((last - first + 1) / MOST_COLUMNS));
    const columns = Math.ceil((last - first + 1) / width);
    const values = new Float64Array(lanes.length * columns).fill(NaN);
    lanes.forEach(({ rank }, row) => {
      const line = slow.values[slow.ranks.indexOf(rank)] ?? [];
      slow.steps.forEach((step, at) => {
        const cell = row * columns + Math.floor((step - first) / width);
        const percent = 100 * (line[at] ?? NaN);
        values[cell] = Number.isNaN(values[cell]) ? percent : Math.max(values[cell] as number, percent);
      });
    });
    this._lanes = lanes;
    this._values = values;
    const missing = Uint8Array.from(values, value => (Number.isNaN(value) ? 1 : 0));
    const { t } = this;
    return this.paint(
      {
        cells: { rows: lanes.length, columns, values, missing },
        scaleOf: dark => new ColorScale(extentOf([values]), 'linear', NaN, { dark }),
        template: 'moment-map',
        texts: {
          xLabel: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
          xTitle: t('step'),
          yTitle: t('rank'),
          legendTitle: ranksThere === 1 ? t('% longer than usual') : t('% longer than its stage')
        },
        ...labelledRows(lanes.length, ROW, row => formatInteger(lanes[row]?.rank ?? NaN)),
        x: [first - 0.5, first + columns * width - 0.5]
      },
      isDark
    );
  }

  stepsOf({ x }: IMark): [number, number] {
    return [Math.round(x[0] + 0.5), Math.round(x[1] - 0.5)];
  }

  protected words(cell: IGridCell): ICellWords {
    const { t } = this;
    const lane = this._lanes[cell.row];
    const [first, last] = this.stepsOf(this.markOf(cell));
    const heading = lane ? laneWords(lane, t) : '';
    const name =
      first === last
        ? t('step %1', formatInteger(first))
        : t('steps %1 to %2', formatInteger(first), formatInteger(last));
    const value = this._valueWords(this._values[cell.row * this.columns + cell.column] ?? NaN);
    return {
      tip: lane ? { heading, lines: [{ name, value }] } : null,
      said: [heading, name, value].join(', '),
      value
    };
  }

  private _valueWords(value: number): string {
    if (Number.isNaN(value)) {
      return this.t('no data');
    }
    return value < 0
      ? this.t('%1 % shorter', formatNumber(-value, 3))
      : this.t('%1 % longer', formatNumber(value, 3));
  }

  private _lanes: ITimelineAnswer['lanes'] = [];
  private _values = new Float64Array();
}
