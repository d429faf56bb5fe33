import type { IPlace, IRecipe, Row, Zoom } from '../../../charts';
import { contrastColor, formatInteger, timeWords, COLORS, hexOf, mixed } from '../../../charts';
import type { IRunSource, SourceChange } from '../../../store/source';
import type { IContent, IMark, IMoved } from '../../../views/shared/content';
import type { Control } from '../../../views/shared/control';
import { hold, moveOf, axisParams } from '../../../views/shared/scale';
import type { ITip } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import { ViewModel, type IViewEnvironment } from '../../../views/shared/view-model';
import type { ILane, ILaneGroup, IGanttBar, IOperation, OperationKind } from './plan-lanes';
import { piecesOf } from './plan-lanes';
import type { PipelineOptions } from '../../../protocol/views.generated';
import { kindColor } from '../../../views/shared/span-kinds';
import { MADE_SCHEDULES, scheduleTitle } from '../plan';

type Schedule = Required<PipelineOptions>['schedule'];

export const SCHEDULES: readonly Schedule[] = ['best', 'measured', ...MADE_SCHEDULES, 'search'];

/** A schedule by the name that people know. */
export function scheduleWords(schedule: string, t: Translate): string {
  switch (schedule) {
    case 'best':
      return t('best');
    case 'measured':
      return t('Measured order');
    case 'search':
      return t('Searched order');
    default:
      return scheduleTitle(schedule);
  }
}

/** Kinds in the order of the legend, each with the kind of span whose colour it has. */
const SPANS: Readonly<Record<OperationKind, string>> = {
  F: 'forward',
  R: 'user',
  B: 'backward',
  I: 'backward',
  W: 'wgrad',
  O: 'optimizer',
  S: 'send'
};

/** How far the colour of the last chunk is mixed with the page's. */
const MOST_MIXED = 0.5;

export const KINDS = Object.keys(SPANS) as OperationKind[];

/** The colour of an operation: that of its kind in a timeline; later chunks are paler. */
export function operationColor(
  { kind, chunk }: Pick<IOperation, 'chunk' | 'kind'>,
  chunks: number,
  isDark: boolean
): string {
  const color = kindColor(SPANS[kind], isDark);
  const share = chunks > 1 && chunk > 0 ? (MOST_MIXED * chunk) / (chunks - 1) : 0;
  return share === 0 ? color : hexOf(mixed([color, COLORS.ink[isDark ? 'dark' : 'light'].ground], share));
}

export function operationWords(kind: OperationKind, t: Translate): string {
  const words: Readonly<Record<OperationKind, string>> = {
    F: t('forward'),
    R: t('recomputed'),
    B: t('backward'),
    I: t('input gradient'),
    W: t('weight gradients'),
    O: t('optimizer'),
    S: t('new weights')
  };
  return words[kind];
}

/** An operation in a sentence: `forward of micro-batch 3, chunk 1, 2.4 ms`. */
export function pieceWords(
  piece: IOperation & { readonly count: number },
  chunks: number,
  t: Translate
): string {
  const took = timeWords(piece.end - piece.begin);
  if (piece.count > 1) {
    return t('%1 operations, %2', formatInteger(piece.count), took);
  }
  const kind = operationWords(piece.kind, t);
  const what = piece.microBatch < 0 ? kind : t('%1 of micro-batch %2', kind, formatInteger(piece.microBatch));
  return chunks > 1 && piece.microBatch >= 0
    ? t('%1, chunk %2, %3', what, formatInteger(piece.chunk), took)
    : t('%1, %2', what, took);
}

export const inkOf = (isDark: boolean): { line: string; text: string } => {
  const { muted: line, text } = COLORS.ink[isDark ? 'dark' : 'light'];
  return { line, text };
};

/** Pixels of a row: at most, at least, and of all of them. */
const ROW = { usual: 20, least: 4, most: 900 };
/** Pixels that the name of a lane takes, and a figure in a bar. */
const LABEL = 13;
const FIGURE = 6.5;
/** Most bars with a number in them. */
const MOST_NUMBERS = 4000;
/** Part of a row on either side of its middle that a bar fills. */
const HALF = 0.44;

interface IGanttRequest {
  readonly groups: readonly ILaneGroup[];
  readonly chunks: number;
  readonly hidden: readonly string[];
  /** Pixels across. */
  readonly width: number;
  readonly isDark: boolean;
  /** What is seen of the axis; null where all is. */
  readonly seen: readonly [number, number] | null;
  readonly hide: (names: string[]) => void;
  /** What lanes are; stages by default. */
  readonly lanes?: string;
}

/** Lanes of operations in groups under one another, over one axis of time. */
class GanttPicture {
  constructor(private readonly _t: Translate) {}

  draw(request: IGanttRequest): Pick<IContent, 'extent' | 'legend' | 'printed' | 'recipe'> {
    const { groups, chunks, isDark, width } = request;
    const { _t: t } = this;
    this._chunks = chunks;
    this._isDark = isDark;
    const hidden = new Set(request.hidden);
    const end = Math.max(1e-9, ...groups.map(each => each.end));
    const [from, to] = request.seen ?? [0, end];
    const across = to - from;
    const window = [from - across, to + across] as const;
    this._rows = [];
    this._names.clear();
    this._pieces = [];
    const headings: Row[] = [];
    const ends: Row[] = [];
    const path: Row[] = [];
    let row = 0;
    groups.forEach((group, at) => {
      if (group.heading !== '') {
        headings.push({ y: row, text: group.heading });
        row += 1;
      }
      const first = row;
      group.lanes.forEach((lane, number) => {
        this._rows.push({ lane, row });
        this._names.set(row, lane.name);
        const place = { group: at, lane: number, row };
        this._pieces.push(
          ...piecesOf(lane, place, window, across / Math.max(1, width)).filter(each => !hidden.has(each.kind))
        );
        row += 1;
      });
      ends.push({ x: group.end, y: first - 0.5, y2: row - 0.5 });
      path.push(...pathRows(group, first));
    });
    const height = Math.max(ROW.least, Math.min(ROW.usual, ROW.most / row));
    const every = Math.max(1, Math.ceil(LABEL / height));
    const named = this._rows.filter((_, at) => at % every === 0);
    const extent = { x: [0, end * 1.01] as const, y: [-0.5, row - 0.5] as const };
    const recipeIn = (dark: boolean): IRecipe => {
      const ink = inkOf(dark);
      const key = this._legend(groups, request, hidden, dark).entries.filter(({ isHidden }) => !isHidden);
      return {
        template: 'pipeline',
        texts: {
          xTitle: t('ms since the step began'),
          yTitle: request.lanes ?? t('stage'),
          colorTitle: t('operation')
        },
        params: {
          ...axisParams(extent.x, extent.y),
          rowNames: Object.fromEntries(named.map(({ lane, row: at }) => [at, lane.name])),
          rowTicks: named.map(each => each.row),
          lineColor: ink.line,
          textColor: ink.text,
          keyText: key.map(({ name }) => name)
        },
        datasets: {
          pieces: this._pieces.map(each => this._row(each, dark)),
          numbers: height < LABEL - 2 ? [] : this._numbers(across, width, dark),
          headings,
          ends,
          path,
          key: key.map(({ color }, index) => ({ place: index, color }))
        },
        height: row * height
      };
    };
    return {
      extent,
      legend: this._legend(groups, request, hidden, isDark),
      recipe: recipeIn(isDark),
      printed: (dark = false) => recipeIn(dark)
    };
  }

  probe({ x, y }: IPlace): IMark | null {
    const row = Math.round(y);
    const found = this._pieces.filter(each => each.row === row && each.begin <= x && each.end >= x).at(-1);
    return found ? markOf(found) : null;
  }

  tipOf(mark: IMark): ITip | null {
    const piece = this._at(mark);
    return piece
      ? {
          heading: this._nameOf(piece),
          lines: [
            { name: this._what(piece), value: timeWords(piece.end - piece.begin), color: this._color(piece) },
            { name: this._t('from'), value: timeWords(piece.begin) }
          ]
        }
      : null;
  }

  /** Number of the group that a mark lies in; -1 where it lies in none. */
  groupOf(mark: IMark): number {
    return this._at(mark)?.group ?? -1;
  }

  move(key: string, zoom: Pick<Zoom, 'reveal'> | null): IMoved | null {
    const by = moveOf(key);
    if (by === undefined || this._rows.length === 0) {
      return null;
    }
    const before = this._cursor;
    const at = this._rows.findIndex(each => each.row === before?.row);
    const { row = 0 } = this._rows[hold(Math.max(0, at) + (before ? by[1] : 0), this._rows.length)] ?? {};
    const inside = this._pieces.filter(each => each.row === row);
    const near = inside.findIndex(each => each.end > (before?.begin ?? 0));
    const next = hold((near < 0 ? inside.length - 1 : near) + (before ? by[0] : 0), inside.length);
    const piece = inside[next];
    if (!piece) {
      return null;
    }
    this._cursor = piece;
    zoom?.reveal((piece.begin + piece.end) / 2, row);
    const sentence = `${this._nameOf(piece)}: ${pieceWords(piece, this._chunks, this._t)}`;
    return { said: sentence, mark: markOf(piece), ...(key === 'copy' ? { copy: sentence } : {}) };
  }

  private _legend(
    groups: readonly ILaneGroup[],
    request: IGanttRequest,
    hidden: ReadonlySet<string>,
    isDark: boolean
  ): NonNullable<IContent['legend']> {
    const { _t: t } = this;
    const there = new Set(
      groups.flatMap(({ lanes }) => lanes.flatMap(({ operations }) => operations.map(each => each.kind)))
    );
    const entries = KINDS.filter(kind => there.has(kind)).map(kind => {
      const name = operationWords(kind, t);
      const color = operationColor({ kind, chunk: 0 }, 1, isDark);
      return { id: kind, name, color, isHidden: hidden.has(kind) };
    });
    return {
      title: t('operation'),
      entries,
      hidden: request.hidden,
      hide: names => request.hide([...names])
    };
  }

  private _row(piece: IGanttBar, isDark: boolean): Row {
    const { row, begin, end } = piece;
    return {
      x: begin,
      x2: end,
      y: row - HALF,
      y2: row + HALF,
      color: this._color(piece, isDark),
      text: `${this._nameOf(piece)}: ${pieceWords(piece, this._chunks, this._t)}`
    };
  }

  /** The numbers of micro-batches in bars that have space for them. */
  private _numbers(across: number, width: number, isDark: boolean): Row[] {
    const scale = width / across;
    const rows = this._pieces.flatMap(piece => {
      const { begin, end, microBatch, row, count } = piece;
      const text = formatInteger(microBatch);
      const space = text.length * FIGURE + 3;
      // Half of the room, since a zoom comes before the next drawing.
      return microBatch < 0 || count > 1 || (end - begin) * scale < space / 2
        ? []
        : [
            {
              x: (begin + end) / 2,
              x1: begin,
              x2: end,
              y: row,
              text,
              room: space,
              color: contrastColor(this._color(piece, isDark))
            }
          ];
    });
    return rows.length > MOST_NUMBERS ? [] : rows;
  }

  private _what(piece: IGanttBar): string {
    const words = pieceWords(piece, this._chunks, this._t);
    return words.slice(0, words.lastIndexOf(', '));
  }

  private _nameOf({ row }: Pick<IGanttBar, 'row'>): string {
    return this._names.get(row) ?? '';
  }

  private _color(piece: IGanttBar, isDark = this._isDark): string {
    return operationColor(piece, this._chunks, isDark);
  }

  private _at({ x, y }: IMark): IGanttBar | undefined {
    const row = y === null ? NaN : Math.round((y[0] + y[1]) / 2);
    return this._pieces.find(each => each.row === row && each.begin === x[0] && each.end === x[1]);
  }

  private _rows: { readonly lane: ILane; readonly row: number }[] = [];
  private readonly _names = new Map<number, string>();
  private _pieces: IGanttBar[] = [];
  private _cursor: IGanttBar | null = null;
  private _chunks = 1;
  private _isDark = false;
}

/** The critical path along the lower edges of lanes, and from each to the one that waited for it. */
function pathRows({ path = [] }: ILaneGroup, first: number): Row[] {
  return path.flatMap(({ lane, begin, end }, at) => {
    const y = first + lane + HALF;
    const next = path[at + 1];
    return [
      { x: begin, y, x2: end, y2: y },
      ...(next ? [{ x: end, y, x2: next.begin, y2: first + next.lane + HALF }] : [])
    ];
  });
}

function markOf({ begin, end, row }: IGanttBar): IMark {
  return { facet: null, x: [begin, end], y: [row - 0.5, row + 0.5] };
}

/** What panes of one view read together. */
interface IRenewed {
  /** Rows have come; returns whether there is something to read anew. */
  renew(): boolean;
}

/** A picture of operations in lanes over the time of a step. */
export abstract class GanttPane<O extends object, R extends IRenewed> extends ViewModel<O> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<O>,
    protected readonly reader: R
  ) {
    super(source, env);
  }

  override readonly zooms = { axes: 'x', least: 1e-6 } as const;

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'spans' && this.reader.renew();
  }

  override controls(): Control[] {
    return [{ kind: 'name', id: 'run', text: this.source.name }];
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  override probe(point: IPlace): IMark | null {
    return this.gantt.probe(point);
  }

  override tipOf(mark: IMark): ITip | null {
    return this.gantt.tipOf(mark);
  }

  override move(key: string): IMoved | null {
    return this.gantt.move(key, this.env.zoom);
  }

  /** What is seen of the axis of time; null where all is. */
  protected get seen(): readonly [number, number] | null {
    const { zoom } = this.env;
    return zoom?.isZoomed ? [zoom.domain.x0, zoom.domain.x1] : null;
  }

  protected readonly gantt = new GanttPicture(this.t);
}
