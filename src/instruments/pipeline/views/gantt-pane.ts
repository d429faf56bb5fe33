import type { Row } from '../../../charts';
import { contrastColor, formatInteger, timeWords, COLORS, hexOf, mixed } from '../../../charts';
import type { IRunSource, SourceChange } from '../../../store/source';
import { LanePicture } from '../../../views/kits/lanes/lane-picture';
import type { IMark } from '../../../views/shared/content';
import type { Control } from '../../../views/shared/control';
import type { Translate } from '../../../views/shared/translate';
import { ViewModel, type IPictured, type IViewEnvironment } from '../../../views/shared/view-model';
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

const kindsOf = ({ operations }: ILane): OperationKind[] => operations.map(({ kind }) => kind);

/**
 * The numbers of micro-batches in bars that have space for them.
 * @param scale - Pixels of a ms.
 */
function numberRows(
  pieces: readonly IGanttBar[],
  scale: number,
  colorOf: (piece: IGanttBar) => string
): Row[] {
  const rows = pieces.flatMap(piece => {
    const { begin, end, microBatch, lane, count } = piece;
    const text = formatInteger(microBatch);
    const room = text.length * FIGURE + 3;
    // Half of the room, since a zoom comes before the next drawing.
    return microBatch < 0 || count > 1 || (end - begin) * scale < room / 2
      ? []
      : [
          {
            x: (begin + end) / 2,
            x1: begin,
            x2: end,
            y: lane,
            text,
            room,
            color: contrastColor(colorOf(piece))
          }
        ];
  });
  return rows.length > MOST_NUMBERS ? [] : rows;
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

/** What panes of one view read together. */
interface IRenewed {
  /** Rows have come; returns whether there is something to read anew. */
  renew(): boolean;
}

/** A picture of operations in lanes over the time of a step. */
export abstract class GanttPane<
  O extends Pick<PipelineOptions, 'hidden'>,
  R extends IRenewed
> extends ViewModel<O> {
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

  protected override get drawn(): IPictured {
    return this._gantt;
  }

  /**
   * Draw groups of lanes under one another, over one axis of time.
   * @param chunks - Most chunks of a stage.
   * @param yTitle - What lanes are.
   */
  protected drawGantt(
    groups: readonly ILaneGroup[],
    chunks: number,
    yTitle = this.t('stage')
  ): ReturnType<LanePicture<IGanttBar>['draw']> {
    const { env, options, t } = this;
    const { isDark, zoom } = env;
    const hidden = new Set<string>(options.hidden);
    const end = Math.max(1e-9, ...groups.map(each => each.end));
    const [from, to] = zoom?.isZoomed ? [zoom.domain.x0, zoom.domain.x1] : [0, end];
    const [across, width] = [to - from, Math.max(1, env.width)];
    const window = [from - across, to + across] as const;
    const lanes = new Map<number, string>();
    const pieces: IGanttBar[] = [];
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
      for (const lane of group.lanes) {
        lanes.set(row, lane.name);
        const found = piecesOf(lane, { group: at, lane: row }, window, across / width);
        pieces.push(...found.filter(({ kind }) => !hidden.has(kind)));
        row += 1;
      }
      ends.push({ x: group.end, y: first - 0.5, y2: row - 0.5 });
      path.push(...pathRows(group, first));
    });
    const height = Math.max(ROW.least, Math.min(ROW.usual, ROW.most / row));
    const every = Math.max(1, Math.ceil(LABEL / height));
    const named = [...lanes].filter((_, at) => at % every === 0);
    const there = new Set(groups.flatMap(each => each.lanes.flatMap(kindsOf)));
    const nameOf = (piece: IGanttBar): string => lanes.get(piece.lane) ?? '';
    const words = (piece: IGanttBar): string => pieceWords(piece, chunks, t);
    const colorOf = (piece: IGanttBar, dark: boolean): string => operationColor(piece, chunks, dark);
    return this._gantt.draw({
      template: 'pipeline',
      pieces,
      x: [0, end * 1.01],
      rows: row,
      names: Object.fromEntries(named),
      ticks: named.map(([at]) => at),
      height: row * height,
      texts: { xTitle: t('ms since the step began'), yTitle, colorTitle: t('operation') },
      kinds: KINDS.filter(kind => there.has(kind)).map(id => ({ id, name: operationWords(id, t) })),
      hidden: options.hidden ?? [],
      hide: next => this.choose({ hidden: next } as Partial<O>),
      colorOf: (kind, dark) => operationColor({ kind, chunk: 0 }, 1, dark),
      bars: (piece, dark) => [{ y: piece.lane - HALF, y2: piece.lane + HALF, color: colorOf(piece, dark) }],
      words: piece => `${nameOf(piece)}: ${words(piece)}`,
      tip: piece => ({
        heading: nameOf(piece),
        lines: [
          {
            name: words(piece).slice(0, words(piece).lastIndexOf(', ')),
            value: timeWords(piece.end - piece.begin),
            color: colorOf(piece, isDark)
          },
          { name: t('from'), value: timeWords(piece.begin) }
        ]
      }),
      more: dark => {
        const ink = inkOf(dark);
        const color = (piece: IGanttBar): string => colorOf(piece, dark);
        const numbers = height < LABEL - 2 ? [] : numberRows(pieces, width / across, color);
        return {
          params: { lineColor: ink.line, textColor: ink.text },
          datasets: { numbers, headings, ends, path }
        };
      }
    });
  }

  /** Number of the group that a mark lies in; -1 where it lies in none. */
  protected groupOf(mark: IMark): number {
    return this._gantt.at(mark)?.group ?? -1;
  }

  private readonly _gantt = new LanePicture<IGanttBar>(this.env);
}
