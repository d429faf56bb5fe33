import { formatInteger, formatNumber, type IPlace, type IPlotFrame, type IRecipe } from '../../../charts';
import { indexAt } from '../../../aggregate';
import type { IPointed } from '../../../store/run-link';
import { movesOf } from '../../shared/moves';
import type { IContent, IMark, IMoved, INote } from '../../shared/content';
import type { ILinkedMarks, IStepAxis } from '../../shared/links';
import { type IPaintedLine, heightOf } from '../../shared/painting';
import { pinnedColumns } from '../../shared/pinned-step';
import { logNotes, robustRange } from '../../shared/robust-range';
import { nearestIndex, padded, scaleOf, wide } from '../../shared/scale';
import type { ITip } from '../../shared/table';
import type { Translate } from '../../shared/translate';
import type { IViewEnvironment } from '../../shared/view-model';
import { Detail, ExactValues, type ReadSteps } from './detail';
import { dashOf, lineColors, legendOf, shownLines, type ILegend } from './legend';
import { brokenPoints, finiteRange, type ILine } from './line';
import {
  lineRecipe,
  type IBadStretch,
  type ILinesRequest,
  moveAmong,
  readingWords,
  readLine,
  tipLines,
  type ICursor,
  type ILinePoint
} from './line-recipe';
import { StepAxis } from './step-axis';

/** A line this near to the pointer is the one that is pointed at, pixels. */
const NEAR_PIXELS = 14;
/** Most lines of one layer that are marked when another view points at it. */
const MOST_TRACES = 8;
const HEIGHT = 300;

export interface ILinesRead {
  /** Of everything that may be zoomed into, hidden ones among them; at least one that is not. */
  readonly lines: readonly ILine[];
  /** What is not drawn. */
  readonly legend: Pick<ILegend, 'hidden' | 'hide'>;
  readonly bad: readonly IBadStretch[];
  readonly axis: StepAxis;
  readonly transform: 'linear' | 'log';
  /** Whether the axis of values ends where all but a few do. */
  readonly ignoresOutliers?: boolean;
  readonly choose?: (options: { transform: 'log' }) => void;
  readonly texts: Omit<ILinesRequest['texts'], 'yScale'>;
  readonly headers?: readonly string[];
  /** Name of the quantity, as the keyboard's cursor says it. */
  readonly quantity: string;
  /** What tips say of a position apart from its step. */
  readonly placeWords?: (x: number) => string;
  /** Points that a trailing mean goes over. */
  readonly smoothing?: number;
  /** Every point of the lines of a run in some steps; absent where all are here. */
  readonly readSteps?: ReadSteps;
}

/**
 * Picture of lines over steps, time or tokens: what is drawn, what is under the pointer, and where a key
 * goes. Every view of lines uses it.
 */
export class LinePicture {
  constructor(
    private readonly _env: Pick<
      IViewEnvironment,
      'frame' | 'isDark' | 'painter' | 'pinned' | 'place' | 'refresh' | 'width' | 'zoom'
    >,
    private readonly _t: Translate
  ) {}

  /**
   * Whether a hand drags what is drawn: nothing may jump under it, so that what came meanwhile is drawn when
   * it lets go.
   */
  get isHeld(): boolean {
    return this._env.zoom?.isDragging === true && this._read !== null;
  }

  take(read: ILinesRead): void {
    const { readSteps, lines: all } = read;
    const lines = shownLines(all, read.legend.hidden);
    this._read = { ...read, lines };
    this.lines = lines;
    this._all = all;
    this._colors = this._colorsIn(this._env.isDark);
    this._legend = legendOf(all, lineColors(all, this._env.isDark), {
      ...read.legend,
      title: read.texts.colorTitle
    });
    const range = finiteRange(lines);
    this._scale = scaleOf(read.transform, range?.[0] ?? 0);
    // Of hidden lines as well: what is shown stays where it is.
    const ends = all.flatMap(({ x }) => [x[0] ?? NaN, x[x.length - 1] ?? NaN]).filter(Number.isFinite);
    this._x = wide([Math.min(...ends), Math.max(...ends)]);
    this._ys = this._rangesIn(lines, undefined);
    this._exact = readSteps ? new ExactValues(readSteps, () => this._env.place()) : null;
  }

  /** Read what is shown in full detail, where the whole leaves points out. */
  async refine(): Promise<void> {
    const [read, { zoom }] = [this._read, this._env];
    if (!read) {
      return;
    }
    if (zoom?.isZoomed && read.readSteps && read.lines.some(line => line.isThin)) {
      const { x0, x1 } = zoom.domain;
      const width = x1 - x0;
      const shown = read.axis.stepsAround([x0, x1]);
      const steps = read.axis.stepsAround([x0 - width, x1 + width]);
      if (!this._detail.covers(read.lines, shown)) {
        const asked = this._readDetail(read, steps);
        if (this.isHeld) {
          // What is shown coarsely meanwhile is drawn again when the answer is there.
          asked.then(
            () => this._env.refresh(false),
            () => undefined
          );
        } else {
          // What is shown coarsely stays where its detail cannot be had, as in the file of a report.
          await asked.catch(() => undefined);
        }
      }
    }
    this.lines = this._detail.refine(read.lines);
    if (!this.isHeld) {
      const { x0, x1 } = zoom?.domain ?? {};
      const span = zoom?.isZoomed && x0 !== undefined && x1 !== undefined ? ([x0, x1] as const) : undefined;
      this._ys = this._rangesIn(this.lines, span);
    }
  }

  /** Say what lies outside of an axis that leaves outliers out; nothing where none does. */
  outlierWords(): string[] {
    const { lines, _ys: ys, _t: t } = this;
    let [count, farthest] = [0, NaN];
    for (const { value, panel = 0 } of this._read?.ignoresOutliers ? lines : []) {
      const [low, high] = ys[panel] ?? [-Infinity, Infinity];
      for (const each of value) {
        const out = Math.max(low - each, each - high);
        if (Number.isFinite(each) && out > 0) {
          count += 1;
          farthest = Math.abs(each) >= Math.abs(farthest || 0) ? each : farthest;
        }
      }
    }
    return count === 0
      ? []
      : [
          t(
            'Outliers, which lie outside of the axis: %1; the farthest is %2.',
            formatInteger(count),
            formatNumber(farthest)
          )
        ];
  }

  /** A scale that shows more, where one does. */
  get notes(): INote[] {
    const { transform, choose, ignoresOutliers } = this._read ?? {};
    const lines = this.lines.filter(({ isFaint }) => !isFaint);
    const panels = [...new Set(lines.map(({ panel = 0 }) => panel))];
    return !choose || !transform || ignoresOutliers
      ? []
      : panels
          .flatMap(panel =>
            logNotes(
              lines.flatMap(line => ((line.panel ?? 0) === panel ? [line.value] : [])),
              transform,
              choose,
              this._t
            )
          )
          .slice(0, 1);
  }

  /** What is drawn, without its words. */
  get drawing(): Pick<IContent, 'extent' | 'legend' | 'printed' | 'recipe' | 'refit' | 'rows'> {
    const { _read: read, lines, _x: x, _ys: ys, _scale: scale, _env: env } = this;
    if (read === null) {
      throw new Error('Expected lines that were read and found none.');
    }
    const colors = this._colors;
    const { bad, headers = [], texts } = read;
    const wish: ILinesRequest = { lines, colors, bad, x, ys, headers, texts: { ...texts, yScale: scale } };
    const { painter, zoom } = env;
    const [y = [0, 1] as const] = ys;
    const shown = zoom?.isZoomed ? ([zoom.domain.x0, zoom.domain.x1] as const) : x;
    const recipeIn = ({ width, height }: Pick<IPlotFrame, 'width' | 'height'>): IRecipe => {
      const look = { colors, y, scale, full: x, width, height, shown };
      const pictures =
        headers.length > 1
          ? null
          : (painter?.paint({
              ...look,
              lines: paintedLines(lines),
              dashes: lines.map(({ run }) => dashOf(run))
            }) ?? null);
      return { ...lineRecipe(wish, pictures), painted: painter?.painted ?? 0 };
    };
    return {
      recipe: recipeIn(env.frame ?? { width: Math.max(200, env.width - 200), height: HEIGHT }),
      refit: frame => (headers.length < 2 && painter?.isStretchedIn(frame) ? recipeIn(frame) : null),
      printed: (dark = env.isDark) => lineRecipe({ ...wish, colors: this._colorsIn(dark) }, null),
      rows: Math.max(1, headers.length),
      extent: { x, y },
      ...(this._legend && { legend: this._legend })
    };
  }

  probe(point: IPlace): IMark | null {
    const panel = this._panelOf(point.frame);
    const lines = this.lines.filter(line => !line.isFaint && (line.panel ?? 0) === panel);
    const [low, high] = this._ys[panel] ?? [0, 1];
    const part = Number.isFinite(point.y) ? (point.y - low) / (high - low) : point.down;
    let [best, least]: [ILine | null, number] = [null, NEAR_PIXELS / point.frame.height];
    for (const line of lines) {
      const value = line.value[nearestIndex(line.x, point.x)] ?? NaN;
      const away = Math.abs(heightOf(value, [low, high], this._scale) - part);
      if (away <= least) {
        [best, least] = [line, away];
      }
    }
    this._near = best;
    let shown: number | null = null;
    for (const line of best ? [best] : lines) {
      const x = line.x[nearestIndex(line.x, point.x)];
      if (x !== undefined && (shown === null || Math.abs(x - point.x) < Math.abs(shown - point.x))) {
        shown = x;
      }
    }
    return shown === null ? null : this.markAt(shown, panel);
  }

  tipOf(mark: IMark): ITip | null {
    const x = mark.x[0];
    const panel = Number(mark.facet?.[1] ?? 0);
    const { pinned } = this._env;
    const there = pinned === null ? x : this._axis.xOf(pinned);
    const lines = tipLines(
      this.lines.filter(line => (line.panel ?? 0) === panel),
      line => this._readAt(line, x),
      this._near,
      line => this._colors[this.lines.indexOf(line)] ?? '#000',
      this._t,
      this._read?.smoothing,
      there === x ? null : line => this._readAt(line, there)
    );
    const columns = pinned === null || there === x ? {} : { columns: pinnedColumns(pinned, this._t) };
    return lines.length === 0 ? null : { heading: this._heading(x), ...columns, lines };
  }

  move(key: string): IMoved | null {
    const { _t: t, _read: read } = this;
    const lines = this.lines.filter(line => !line.isFaint);
    const at = moveAmong(key, this._at, lines);
    const line = at && lines[at.line];
    if (at === null || !line || !read) {
      return null;
    }
    this._at = at;
    this._near = line;
    this._env.zoom?.reveal(at.x, 0);
    const words = (): [said: string, value: string] => {
      const reading = this._readAt(line, at.x);
      const value =
        reading === null
          ? t('no value')
          : reading === 'asked'
            ? '…'
            : readingWords(reading, t, read.smoothing) + (line.unit ? ` ${line.unit}` : '');
      const what = [line.name, read.quantity].filter(Boolean).join(': ');
      return [t('%1, %2 %3', this._heading(at.x), what, value), value];
    };
    const [said, value] = words();
    const mark = this.markAt(at.x, line.panel ?? 0);
    const later = value === '…' ? this._exact?.settled.then(() => words()[0]) : undefined;
    return { said, mark, ...(key === 'copy' ? { copy: value } : {}), ...(later ? { later } : {}) };
  }

  /** Put the cursor at a step; null where there are no lines. */
  goTo(step: number): IMark | null {
    const lines = this.lines.filter(line => !line.isFaint);
    const index = Math.max(0, this._near ? lines.indexOf(this._near) : 0);
    const line = lines[index];
    if (!line) {
      return null;
    }
    const x = this._axis.xOf(step);
    this._at = { line: index, x };
    return this.markAt(x, line.panel ?? 0);
  }

  /** Put the cursor where lines moved most, and return its mark; null where none moved. */
  insight(): IMark | null {
    const lines = this.lines.filter(line => !line.isFaint);
    const found = movesOf(lines.map(({ step, value }, layer) => ({ layer, steps: step, values: value })));
    const line = found && lines[found.strongest.layer];
    const x = line?.x[indexAt(line.step, found?.strongest.last ?? NaN)];
    if (!found || !line || x === undefined) {
      return null;
    }
    this._near = line;
    this._at = { line: found.strongest.layer, x };
    return this.markAt(x, line.panel ?? 0);
  }

  pointedBy(mark: IMark): IPointed {
    return { step: this._axis.stepAt(mark.x[0]), layer: this._near?.layer ?? null };
  }

  marksOf({ layer, step }: IPointed): ILinkedMarks {
    const x = step === null ? null : this._axis.xOf(step);
    const found = layer === null ? [] : this.lines.filter(line => line.layer === layer && !line.isFaint);
    return {
      marks: x === null ? [] : [{ facet: null, x: [x, x], y: null }],
      traces: found.slice(0, MOST_TRACES).map(line => {
        const { x: xs, value } = brokenPoints(line);
        const domain = this._ys[line.panel ?? 0] ?? [0, 1];
        return {
          color: this._colors[this.lines.indexOf(line)] ?? '#000',
          points: Array.from(
            xs,
            (at, index) => [at, heightOf(value[index] ?? NaN, domain, this._scale)] as const
          )
        };
      })
    };
  }

  stepAxis(): IStepAxis {
    return {
      stepsIn: span => this._axis.stepsIn(span),
      spanOf: ([first, last]) => [this._axis.xOf(first), this._axis.xOf(last)]
    };
  }

  private get _axis(): StepAxis {
    return this._read?.axis ?? NO_STEPS;
  }

  /** Colours of the lines that are drawn: a line has the same one whichever others are hidden. */
  private _colorsIn(dark: boolean): readonly string[] {
    const colors = lineColors(this._all, dark);
    const indices = new Map(this._all.map((line, at) => [line, at]));
    return (this._read?.lines ?? []).map(line => colors[indices.get(line) ?? 0] ?? '#000');
  }

  private _readDetail(read: ILinesRead, steps: readonly [number, number]): Promise<void> {
    const runs = [...new Set(read.lines.map(line => line.run))];
    const asked = runs.map(run => read.readSteps?.(run, steps) ?? Promise.resolve([]));
    return Promise.all(asked).then(lines => this._detail.take(read.lines, steps, lines.flat()));
  }

  private _readAt(line: ILine, x: number): ILinePoint | 'asked' | null {
    const reading = this._pointAt(line, x);
    if (reading === null || reading === 'asked' || !reading.isExact) {
      return reading;
    }
    const faint = this.lines.find(each => each.isFaint && each.key === line.key && each.run === line.run);
    const behind = faint ? this._pointAt(faint, x) : null;
    return behind === null || behind === 'asked'
      ? behind === null
        ? reading
        : behind
      : { ...reading, raw: behind.from.value[behind.at] ?? NaN };
  }

  private _pointAt(line: ILine, x: number): ILinePoint | 'asked' | null {
    const reading = readLine(line, x);
    if (reading === null || reading.isExact || !line.isThin || !this._exact || this._read === null) {
      return reading;
    }
    const { at } = reading;
    const [first = NaN, next = NaN] = [line.step[at], line.step[at + 1]];
    if (Number.isNaN(next) || this._detail.holds(this._read.lines, [first, next])) {
      return reading;
    }
    const part = this._exact.about(line, at, x);
    return part === null ? 'asked' : part === undefined ? null : readLine(line, x, part);
  }

  private _heading(x: number): string {
    const step = this._t('step %1', formatInteger(this._axis.stepAt(x)));
    const xText = this._read?.placeWords?.(x);
    return xText ? `${step}, ${xText}` : step;
  }

  private _rangesIn(
    lines: readonly ILine[],
    span: readonly [number, number] | undefined
  ): readonly [number, number][] {
    const isLog = this._read?.transform === 'log';
    const inner = this._read?.ignoresOutliers ? innerRange : (): null => null;
    return Array.from({ length: Math.max(1, this._read?.headers?.length ?? 1) }, (_, panel) => {
      const own = lines.filter(line => (line.panel ?? 0) === panel);
      return padded(
        inner(own, span) ?? finiteRange(own, span) ?? finiteRange(own),
        isLog && this._scale === 'log'
      );
    });
  }

  private _panelOf({ facet }: IPlotFrame): number {
    return Number(facet['panel'] ?? 0);
  }

  markAt(x: number, panel: number): IMark {
    const facet = (this._read?.headers?.length ?? 1) > 1 ? (['panel', panel] as const) : null;
    return { facet, x: [x, x], y: null };
  }

  private _read: ILinesRead | null = null;
  lines: readonly ILine[] = [];
  private _all: readonly ILine[] = [];
  private _legend: ILegend | null = null;
  private _colors: readonly string[] = [];
  private _x: [number, number] = [0, 1];
  private _ys: readonly (readonly [number, number])[] = [[0, 1]];
  private _scale: string = 'linear';
  private _near: ILine | null = null;
  private _at: ICursor | null = null;
  private _exact: ExactValues | null = null;
  private readonly _detail = new Detail();
}

/** What all but a few values of lines span, of a span of the x axis; null where no few lie far out. */
function innerRange(
  lines: readonly ILine[],
  [from, to]: readonly [number, number] = [-Infinity, Infinity]
): readonly [number, number] | null {
  return robustRange(
    lines.map(({ x, value }) => value.filter((_, at) => (x[at] ?? NaN) >= from && (x[at] ?? NaN) <= to))
  );
}

const NO_STEPS = new StepAxis([]);

const PAINTED = new WeakMap<readonly ILine[], readonly IPaintedLine[]>();

/**
 * Lines as the page paints them; the same object for the same lines, by which it knows what is painted
 * already.
 */
function paintedLines(lines: readonly ILine[]): readonly IPaintedLine[] {
  const known = PAINTED.get(lines);
  const painted =
    known ?? lines.map(line => ({ ...brokenPoints(line), ...(line.isFaint ? { isFaint: true } : {}) }));
  PAINTED.set(lines, painted);
  return painted;
}
