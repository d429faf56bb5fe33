import {
  ColorScale,
  formatInteger,
  formatNumber,
  Pictures,
  type IMatrix,
  type IPlace,
  type IRecipe
} from '../../../charts';
import type { IContent, IMark, IMoved } from '../../../views/shared/content';
import { moveAmongCells, type IGridCell, colorStrip, extentOf } from '../../../views/shared/scale';
import type { ITip } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import type { ITimelineAnswer } from '../client/timeline-api';
import { laneWords } from './lanes';

const MOST_COLUMNS = 1000;
const ROW = { height: 16, least: 60, most: 900, label: 13 };

/** How much longer each rank computes than the ranks of its stage, rank × step; columns show the slowest. */
export class SlowMap {
  constructor(private readonly _t: Translate) {}

  draw(answer: ITimelineAnswer, isDark: boolean): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { lanes, slow } = answer;
    this._lanes = lanes;
    this._first = slow.steps[0] ?? 0;
    const last = slow.steps.at(-1) ?? this._first;
    this._width = Math.max(1, Math.ceil((last - this._first + 1) / MOST_COLUMNS));
    const columns = Math.ceil((last - this._first + 1) / this._width);
    const values = new Float64Array(lanes.length * columns).fill(NaN);
    lanes.forEach(({ rank }, row) => {
      const line = slow.values[slow.ranks.indexOf(rank)] ?? [];
      slow.steps.forEach((step, at) => {
        const cell = row * columns + Math.floor((step - this._first) / this._width);
        const percent = 100 * (line[at] ?? NaN);
        values[cell] = Number.isNaN(values[cell]) ? percent : Math.max(values[cell] as number, percent);
      });
    });
    const missing = Uint8Array.from(values, value => (Number.isNaN(value) ? 1 : 0));
    this._cells = { rows: lanes.length, columns, values, missing };
    const [x0, x1] = [this._first - 0.5, this._first + columns * this._width - 0.5];
    const [y0, y1] = [-0.5, lanes.length - 0.5];
    const height = Math.min(ROW.most, Math.max(ROW.least, lanes.length * ROW.height));
    const every = Math.ceil((ROW.label * lanes.length) / height);
    const rowAt = Array.from(lanes.keys()).filter(row => row % every === 0);
    const recipeIn = (dark: boolean, pictures: Pictures): IRecipe => {
      const scale = new ColorScale(extentOf([values]), 'linear', NaN, { dark });
      const strip = colorStrip(scale, false, this._t);
      return {
        template: 'moment-map',
        texts: {
          xLabel: "datum.value % 1 === 0 ? join(split(format(datum.value, ',d'), ','), ' ') : ''",
          xTitle: this._t('step'),
          yTitle: this._t('rank'),
          legendTitle:
            answer.ranksThere === 1 ? this._t('% longer than usual') : this._t('% longer than its stage')
        },
        params: {
          x0,
          x1,
          y0,
          y1,
          rowAt,
          rowText: rowAt.map(row => formatInteger(lanes[row]?.rank ?? NaN)),
          ...strip.params
        },
        datasets: {
          pictures: [{ ...pictures.draw(0, this._cells, scale), x: x0, x2: x1, y: y0, y2: y1 }],
          legend: strip.rows
        },
        painted: pictures.painted,
        height
      };
    };
    return {
      recipe: recipeIn(isDark, this._pictures),
      printed: (dark = false) => recipeIn(dark, new Pictures()),
      extent: { x: [x0, x1], y: [y0, y1] }
    };
  }

  probe({ x, y }: IPlace): IMark | null {
    const [row, column] = [Math.round(y), Math.floor((x - this._first + 0.5) / this._width)];
    const { rows, columns } = this._cells;
    return row >= 0 && row < rows && column >= 0 && column < columns ? this._markOf(row, column) : null;
  }

  tipOf(mark: IMark): ITip | null {
    const lane = this._lanes[this._rowOf(mark)];
    return lane
      ? {
          heading: laneWords(lane, this._t),
          lines: [{ name: this._stepWords(mark), value: this._valueWords(mark) }]
        }
      : null;
  }

  stepsOf({ x }: IMark): [number, number] {
    return [Math.round(x[0] + 0.5), Math.round(x[1] - 0.5)];
  }

  move(key: string): IMoved | null {
    const cell = moveAmongCells(key, this._at, this._cells);
    if (!cell) {
      return null;
    }
    this._at = cell;
    const mark = this._markOf(cell.row, cell.column);
    const lane = this._lanes[cell.row];
    const value = this._valueWords(mark);
    const sentence = [lane ? laneWords(lane, this._t) : '', this._stepWords(mark), value].join(', ');
    return key === 'copy' ? { said: sentence, mark, copy: value } : { said: sentence, mark };
  }

  private _markOf(row: number, column: number): IMark {
    const begin = this._first + column * this._width - 0.5;
    return { facet: null, x: [begin, begin + this._width], y: [row - 0.5, row + 0.5] };
  }

  private _rowOf({ y }: IMark): number {
    return y === null ? -1 : Math.round((y[0] + y[1]) / 2);
  }

  private _stepWords(mark: IMark): string {
    const [first, last] = this.stepsOf(mark);
    return first === last
      ? this._t('step %1', formatInteger(first))
      : this._t('steps %1 to %2', formatInteger(first), formatInteger(last));
  }

  private _valueWords(mark: IMark): string {
    const column = Math.floor(((mark.x[0] + mark.x[1]) / 2 - this._first + 0.5) / this._width);
    const value = this._cells.values[this._rowOf(mark) * this._cells.columns + column] ?? NaN;
    if (Number.isNaN(value)) {
      return this._t('no data');
    }
    return value < 0
      ? this._t('%1 % shorter', formatNumber(-value, 3))
      : this._t('%1 % longer', formatNumber(value, 3));
  }

  private readonly _pictures = new Pictures();
  private _lanes: ITimelineAnswer['lanes'] = [];
  private _cells: IMatrix = { rows: 0, columns: 0, values: [] };
  private _first = 0;
  private _width = 1;
  private _at: IGridCell | null = null;
}
