import {
  hasUnfinished,
  Pictures,
  type ColorScale,
  type IMatrix,
  type IPlace,
  type IRecipe
} from '../../../charts';
import { own } from '../../../protocol/records';
import type { IPointed } from '../../../store/run-link';
import type { IContent, IMark, IMoved } from '../../shared/content';
import type { ILinkedMarks, IStepAxis } from '../../shared/links';
import { besideWords, pinnedColumns } from '../../shared/pinned-step';
import {
  around,
  axisParams,
  colorStrip,
  hold,
  moveAmongCells,
  nearestIndex,
  turnOf,
  type IGridCell
} from '../../shared/scale';
import type { ITip } from '../../shared/table';
import type { Translate } from '../../shared/translate';
import type { IPictured, IViewEnvironment } from '../../shared/view-model';
import type { StepAxis } from '../lines/step-axis';

/** A matrix as it is drawn, and where its cells lie. */
export interface IMatrixDrawing {
  readonly cells: IMatrix;
  /** Colours on a light or on a dark page. */
  readonly scaleOf: (dark: boolean) => ColorScale;
  readonly template: Extract<IRecipe['template'], 'moment-map' | 'token-map' | 'trend-heatmap'>;
  readonly texts: IRecipe['texts'];
  /** What the template needs beside axes and strip. */
  readonly params?: IRecipe['params'];
  /** What is drawn upon the cells. */
  readonly datasets?: (scale: ColorScale) => IRecipe['datasets'];
  readonly height: number;
  /** What the cells cover across and, where row 0 is not the first, down. */
  readonly x: readonly [number, number];
  readonly y?: readonly [number, number];
  /** What is shown across, and what can be zoomed into; all cells where absent. */
  readonly shown?: readonly [number, number];
  readonly whole?: readonly [number, number];
  /** Middles of the columns that can be pointed at, ascending, and the width of each; of all where absent. */
  readonly xs?: ArrayLike<number>;
  readonly width?: number;
  /** The same of rows, each one high. */
  readonly ys?: ArrayLike<number>;
  /** How steps lie across; absent where columns are something else. */
  readonly axis?: StepAxis;
}

/** What is said of a cell. */
export interface ICellWords {
  /** Null where a tip has nothing to say. */
  readonly tip: ITip | null;
  /** What a key says, and what is copied. */
  readonly said: string;
  readonly value: string;
}

/** Where the cells of a plot lie, in the units of its axes. */
export interface ICellPlot {
  /** The facet that the plot is of; null where it is the only one. */
  readonly facet?: IMark['facet'];
  /** What the cells cover across. */
  readonly x: readonly [number, number];
  /** Middles of the columns, ascending, and half the width of each. */
  readonly xs: ArrayLike<number>;
  readonly half: number;
  /** Middles of the rows; null where a whole column is pointed at. */
  readonly ys: ArrayLike<number> | null;
  /** Half the height of each; they are one high where it is absent. */
  readonly halfDown?: number;
  /** How steps lie across; null where columns are something else. */
  readonly axis: StepAxis | null;
}

/** What of a picture makes marks of cells: what is under the pointer, and where a key goes. */
export abstract class CellPicture implements IPictured {
  constructor(
    protected readonly t: Translate,
    private readonly _env: Partial<Pick<IViewEnvironment, 'pinned' | 'zoom'>> = {}
  ) {}

  /** Where the cursor is, in the units of the axes, and in which plot. */
  at: { readonly x: number; readonly y: number; readonly plot?: number | undefined } | null = null;

  /** Column and row at which the keys begin; of those beyond the last the last one. */
  protected firstColumn = 0;
  protected firstRow = 0;

  /** Whether the nearest column is meant where none lies under the pointer. */
  protected readonly snaps: boolean = false;

  /** Whether two keys go from one plot to another. */
  protected readonly turns: boolean = false;

  protected abstract words(cell: IGridCell): ICellWords;

  /** Layer of a row; null where rows are something else. */
  protected layerOf(_row: number): number | null {
    return null;
  }

  /** Numbers of a cell and of its row at the pinned step, which a tip compares; null where it does not. */
  protected compared(_cell: IGridCell, _pinned: number): readonly [now: number, then: number] | null {
    return null;
  }

  /** Answers Enter; absent where that means nothing. */
  protected pressed?(mark: IMark): void;

  /** What can be pointed at. */
  protected plots: readonly ICellPlot[] = [];

  probe({ frame, x, y }: IPlace): IMark | null {
    const plot = this.plots.findIndex(({ facet }) => !facet || own(frame.facet, facet[0]) === facet[1]);
    const cell = this.cellAt(x, y, plot);
    // The keys go on from where the pointer is.
    return cell && this.show(cell);
  }

  tipOf(mark: IMark): ITip | null {
    const cell = this.cellOf(mark);
    const tip = cell && this.words(cell).tip;
    if (!cell || !tip) {
      return null;
    }
    const { pinned = null } = this._env;
    const numbers = pinned === null || pinned === this.stepOf(cell) ? null : this.compared(cell, pinned);
    return pinned === null || numbers === null
      ? tip
      : {
          ...tip,
          columns: pinnedColumns(pinned, this.t),
          lines: tip.lines.map(line => ({ ...line, beside: besideWords(...numbers, this.t) }))
        };
  }

  move(key: string): IMoved | null {
    const { at, plots } = this;
    const isPressed = key === 'Enter' && this.pressed !== undefined;
    const turn = this.turns ? turnOf(key) : 0;
    const plot = hold((at?.plot ?? 0) + turn, plots.length);
    const { xs = [], ys = [] } = plots[plot] ?? {};
    const before = at && {
      column: Math.max(0, nearestIndex(xs, at.x)),
      row: ys ? Math.max(0, nearestIndex(ys, at.y)) : 0
    };
    const moved = moveAmongCells(
      isPressed || turn !== 0 ? 'copy' : key,
      before,
      { columns: xs.length, rows: ys?.length ?? 1 },
      { column: this.firstColumn, row: this.firstRow }
    );
    if (moved === null) {
      return null;
    }
    const cell = { ...moved, plot };
    const mark = this.show(cell);
    this._env.zoom?.reveal(xs[cell.column] ?? 0, ys?.[cell.row] ?? 0);
    const { said, value } = this.words(cell);
    if (isPressed) {
      this.pressed?.(mark);
    }
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  /** Put the cursor into a cell, and return its mark. */
  show({ column, row, plot }: IGridCell): IMark {
    const { xs, ys } = this._plot(plot);
    return this.showAt(xs[column] ?? NaN, ys?.[row] ?? NaN, plot);
  }

  markOf({ column, row, plot }: IGridCell): IMark {
    const { xs, ys } = this._plot(plot);
    return this.markAt(xs[column] ?? NaN, ys?.[row] ?? NaN, plot);
  }

  /** Put the cursor into the cell whose middle lies there, and return its mark. */
  showAt(x: number, y: number, plot?: number): IMark {
    this.at = { x, y, plot };
    return this.markAt(x, y, plot);
  }

  /** Put the cursor at the column nearest to a step, and return its mark; null where there is none. */
  goTo(step: number): IMark | null {
    const { axis, xs, ys } = this._plot();
    const rows = ys?.length ?? 1;
    const column = nearestIndex(xs, axis?.xOf(step) ?? step);
    const row = this.at && ys ? Math.max(0, nearestIndex(ys, this.at.y)) : hold(this.firstRow, rows);
    return column < 0 || rows === 0 ? null : this.show({ column, row });
  }

  pointedBy(mark: IMark): IPointed {
    const cell = this.cellOf(mark);
    return {
      step: this._plot().axis?.stepNear(middleOf(mark.x)) ?? null,
      layer: cell && this.layerOf(cell.row)
    };
  }

  marksOf({ layer, step }: IPointed): ILinkedMarks {
    const { axis } = this._plot();
    const at = step === null || !axis ? null : axis.xOf(step);
    const row = layer === null ? null : this.rowOf(layer);
    return {
      marks: [...(at === null ? [] : [{ facet: null, x: [at, at] as const, y: null }]), ...(row ? [row] : [])]
    };
  }

  /** A whole row; null where the layer is not drawn. */
  rowOf(layer: number): IMark | null {
    const { x, ys } = this._plot();
    const row = Array.from(ys ?? []).findIndex((_, at) => this.layerOf(at) === layer);
    return row < 0 ? null : { facet: null, x, y: around(ys?.[row] ?? 0) };
  }

  stepAxis(): IStepAxis | undefined {
    const { axis, half } = this._plot();
    return axis
      ? {
          stepsIn: span => axis.stepsIn(span),
          spanOf: ([first, last]) => [axis.xOf(first) - half, axis.xOf(last) + half]
        }
      : undefined;
  }

  /** The mark of a cell whose middle lies there. */
  markAt(x: number, y: number, plot?: number): IMark {
    const { facet = null, half, ys, halfDown = 0.5 } = this._plot(plot);
    return { facet, x: [x - half, x + half], y: ys && [y - halfDown, y + halfDown] };
  }

  /** The cell of a mark; null where that is of no row, or nothing can be pointed at there. */
  cellOf({ facet, x, y }: IMark): IGridCell | null {
    const plot = this.plots.findIndex(each => each.facet?.[1] === facet?.[1]);
    return y || this._plot(plot).ys === null ? this.cellAt(middleOf(x), y ? middleOf(y) : NaN, plot) : null;
  }

  /** How many columns can be pointed at. */
  protected get columns(): number {
    return this._plot().xs.length;
  }

  protected cellAt(x: number, y: number, plot = 0): IGridCell | null {
    const { xs, ys, half, halfDown = 0.5 } = this._plot(plot);
    const [column, row] = [nearestIndex(xs, x), ys ? nearestIndex(ys, y) : 0];
    // Edges are sums, which round.
    const isIn = this.snaps || Math.abs((xs[column] ?? NaN) - x) <= half * (1 + 1e-6);
    return column >= 0 && isIn && (!ys || Math.abs((ys[row] ?? NaN) - y) <= halfDown)
      ? { column, row, plot }
      : null;
  }

  /** The step of a cell; null where columns are something else. */
  protected stepOf({ column }: IGridCell): number | null {
    const { axis, xs } = this._plot();
    return axis?.stepNear(xs[column] ?? NaN) ?? null;
  }

  private _plot(plot = 0): ICellPlot {
    return this.plots[plot] ?? NO_CELLS;
  }
}

const NO_CELLS: ICellPlot = { x: [0, 1], xs: [], ys: [], half: 0.5, axis: null };

const middleOf = ([from, to]: readonly [number, number]): number => (from + to) / 2;

/** A grid of coloured cells, and what answers for them. */
export abstract class MatrixPicture extends CellPicture {
  /** What the colours span; null before anything was drawn. */
  domain: readonly [number, number] | null = null;

  /** Says that something that is drawn is not finite, where it is. */
  unfinishedWords: readonly string[] = [];

  /** Whether a picture is painted over the one before. */
  protected readonly repaints: boolean = true;

  protected paint(
    drawing: IMatrixDrawing,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'printed'> & { readonly recipe: IRecipe } {
    const { cells, x, whole = x } = drawing;
    const { y = [-0.5, cells.rows - 0.5] as const, width = (x[1] - x[0]) / cells.columns } = drawing;
    const {
      xs = Float64Array.from({ length: cells.columns }, (_, column) => x[0] + (column + 0.5) * width),
      ys = Float64Array.from({ length: cells.rows }, (_, row) => y[0] + 0.5 + row)
    } = drawing;
    this.plots = [{ x, xs, ys, half: width / 2, axis: drawing.axis ?? null }];
    const scale = drawing.scaleOf(isDark);
    this.domain = scale.domain;
    const isUnfinished = hasUnfinished(cells);
    this.unfinishedWords = isUnfinished ? [this.t('Cells in which values are not finite are hatched.')] : [];
    const recipeIn = (dark: boolean, pictures: Pictures): IRecipe => {
      const colors = dark === isDark ? scale : drawing.scaleOf(dark);
      const strip = colorStrip(colors, isUnfinished, this.t);
      const picture = { ...pictures.draw(0, cells, colors), x: x[0], x2: x[1], y: y[0], y2: y[1] };
      return {
        template: drawing.template,
        texts: drawing.texts,
        params: { ...axisParams(drawing.shown ?? x, y), ...drawing.params, ...strip.params },
        datasets: { pictures: [picture], ...drawing.datasets?.(colors), legend: strip.rows },
        ...(this.repaints && { painted: pictures.painted }),
        height: drawing.height
      };
    };
    return {
      recipe: recipeIn(isDark, this.repaints ? this._pictures : new Pictures()),
      // Only the middle of a scale that has one is another in the dark.
      ...((scale.signed || scale.stepped) && {
        printed: (dark = false) => recipeIn(dark, new Pictures())
      }),
      extent: { x: whole, y }
    };
  }

  private readonly _pictures = new Pictures();
}
