import type { Row, IMatrix, IPlace, IRecipe } from '../../../charts';
import { formatInteger, formatBytes, timeWords, ColorScale, formatNumber, Pictures } from '../../../charts';
import { own } from '../../../protocol/records';
import { kindColor } from '../../../views/shared/span-kinds';
import type { ITip } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import type { ITimelineAnswer, ITimelineLane, IPiece } from '../client/timeline-api';
import type { IContent, IMark, IMoved } from '../../../views/shared/content';
import { moveAmongCells, type IGridCell, colorStrip, extentOf } from '../../../views/shared/scale';

/** Pixels of a lane, and of all of them. */
export const LANE = { least: 10, usual: 22, most: 900 };
/** Pixels of a piece's height that are left free, as a part of the lane. */
export const HALF = 0.42;
/** Pixels that the name of a lane takes, and a letter of what is written on one. */
const LABEL = 14;
const LETTER = 6;
/** Kinds whose spans are named on their lane. */
const NAMED: ReadonlySet<string> = new Set(['checkpoint', 'data', 'user']);

/** Lanes that are named: as many as there is space for, and those of who makes others wait. */
export function namedLanes({ lanes, culprits }: ITimelineAnswer): number[] {
  const every = Math.ceil(LABEL / laneHeight(lanes.length));
  const named = new Set(culprits.flatMap(({ ranks }) => (ranks.length > 4 ? [] : ranks)));
  const important = lanes.flatMap(({ rank }, at) => (named.has(rank) ? [at] : []));
  const others = lanes.map((_, at) => at).filter(at => at % every === 0);
  return [...important, ...others.filter(at => !important.some(each => Math.abs(each - at) < every))];
}

/** The critical path along the lower edges of lanes, and from each rank to the one that it waited for. */
export function pathRows({ lanes, path }: ITimelineAnswer): Row[] {
  const laneOf = new Map(lanes.map(({ rank }, at) => [rank, at + HALF]));
  return path.flatMap(({ rank, begin, end }, at) => {
    const y = laneOf.get(rank);
    const before = path[at - 1];
    const from = before?.begin === end ? laneOf.get(before.rank) : undefined;
    return [
      ...(y === undefined ? [] : [{ x: begin, y, x2: end, y2: y }]),
      ...(y === undefined || from === undefined ? [] : [{ x: end, y, x2: end, y2: from }])
    ];
  });
}

export const laneHeight = (lanes: number): number =>
  Math.max(LANE.least, Math.min(LANE.usual, LANE.most / Math.max(1, lanes)));

/** What is written on a lane: names of long spans that are no passes, and where nothing was recorded. */
export function labelRows(
  { lanes, pieces, window: [from, to], whole }: ITimelineAnswer,
  hidden: ReadonlySet<string>,
  width: number,
  t: Translate
): Row[] {
  if (laneHeight(lanes.length) < LABEL) {
    return [];
  }
  const pixel = (to - from) / Math.max(1, width);
  const rows: Row[] = [];
  const add = (lane: number, begin: number, end: number, what: string, isGap: boolean): void => {
    const text = `${what} ${timeWords(end - begin)}`;
    if (text.length * LETTER * pixel < end - begin) {
      rows.push({ x: (begin + end) / 2, y: lane, text, gap: Number(isGap) });
    }
  };
  for (const lane of lanes.keys()) {
    let done = Math.max(from, whole[0]);
    for (const piece of pieces.filter(each => each.lane === lane).sort((a, b) => a.begin - b.begin)) {
      const { begin, end, kind, name, depth } = piece;
      add(lane, done, begin, t('nothing recorded'), true);
      done = Math.max(done, end);
      if (depth === 0 && NAMED.has(kind) && !hidden.has(kind)) {
        add(lane, begin, end, name === '' ? kindWords(kind, t) : name, false);
      }
    }
  }
  return rows;
}

/** Beginnings of steps, each with its number where there is room. */
export function stepRows({ steps, window: [from, to] }: ITimelineAnswer, width: number): Row[] {
  const space = ((to - from) / Math.max(1, width)) * 50;
  let free = -Infinity;
  return steps.map(([step, begin]) => {
    const isNamed = begin >= free;
    free = isNamed ? begin + space : free;
    return { x: begin, text: isNamed ? formatInteger(step) : '' };
  });
}

/** How uncertain the clock of a rank is, as a bar about the beginning of the first step that is seen. */
export function clockRow(
  { steps, window: [from] }: ITimelineAnswer,
  { halfWidth }: ITimelineLane,
  at: number
): Row[] {
  const begin = steps.find(each => each[1] >= from)?.[1];
  return begin === undefined || halfWidth === 0
    ? []
    : [{ x: begin - halfWidth, x2: begin + halfWidth, y: at - HALF }];
}

export function kindWords(kind: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    wgrad: t('weight gradients'),
    optimizer: t('optimizer'),
    data: t('waits for data'),
    checkpoint: t('checkpoint'),
    user: t('your own spans'),
    collective: t('blocked in a collective'),
    send: t('blocked in a send'),
    receive: t('blocked in a receive')
  };
  return own(words, kind) ?? kind;
}

/** A rank, with its stage where there are such. */
export function laneWords({ rank, stage }: ITimelineLane, t: Translate): string {
  return stage < 0
    ? t('rank %1', formatInteger(rank))
    : t('rank %1, stage %2', formatInteger(rank), formatInteger(stage));
}

export function pieceTip(piece: IPiece, lane: ITimelineLane, isDark: boolean, t: Translate): ITip {
  const { kind, name, count, begin, end, step, microBatch, bytes, group, peer } = piece;
  const what = name === '' ? kindWords(kind, t) : name;
  const line = (there: boolean, label: string, value: () => string): ITip['lines'] =>
    there ? [{ name: label, value: value() }] : [];
  return {
    heading: laneWords(lane, t),
    lines: [
      { name: what, value: timeWords(end - begin), color: kindColor(kind, isDark) },
      ...line(count > 1, t('spans, summed'), () => formatInteger(count)),
      ...line(step >= 0, t('step'), () => formatInteger(step)),
      ...line(microBatch >= 0, t('micro-batch'), () => formatInteger(microBatch)),
      ...line(peer >= 0, t('other rank'), () => formatInteger(peer)),
      ...line(group !== '', t('ranks'), () => group),
      ...line(bytes > 0, t('size'), () => formatBytes(bytes)),
      { name: t('from'), value: timeWords(begin) }
    ]
  };
}

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
