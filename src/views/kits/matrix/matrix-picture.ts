import { Pictures, type ColorScale, type IMatrix, type IPlace, type IRecipe } from '../../../charts';
import type { IPointed } from '../../../store/run-link';
import type { IContent, IMark, IMoved } from '../../shared/content';
import type { ILinkedMarks, IStepAxis } from '../../shared/links';
import { besideWords, pinnedColumns } from '../../shared/pinned-step';
import {
  around,
  axisParams,
  colorStrip,
  moveAmongCells,
  nearestIndex,
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
  readonly tip: { readonly heading: string; readonly name: string; readonly value: string } | null;
  /** What a key says, and what is copied. */
  readonly said: string;
  readonly value: string;
}

/** A grid of coloured cells: what is drawn, what is under the pointer, and where a key goes. */
export abstract class MatrixPicture implements IPictured {
  constructor(
    protected readonly t: Translate,
    private readonly _env: Partial<Pick<IViewEnvironment, 'pinned' | 'zoom'>> = {}
  ) {}

  /** What the colours span; null before anything was drawn. */
  domain: readonly [number, number] | null = null;

  /** Whether something that is drawn is not finite. */
  isUnfinished = false;

  /** Where the cursor is, in the units of the axes. */
  at: { readonly x: number; readonly y: number } | null = null;

  /** Column at which the keys begin; of those beyond the last the last one. */
  protected readonly firstColumn: number = 0;

  /** Whether the nearest column is meant where none lies under the pointer. */
  protected readonly snaps: boolean = false;

  /** Whether a picture is painted over the one before. */
  protected readonly repaints: boolean = true;

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
    this._drawn = { x, xs, ys, half: width / 2, axis: drawing.axis ?? null };
    const scale = drawing.scaleOf(isDark);
    this.domain = scale.domain;
    const isUnfinished = hasUnfinished(cells);
    this.isUnfinished = isUnfinished;
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

  probe({ x, y }: IPlace): IMark | null {
    const cell = this.cellAt(x, y);
    // The keys go on from where the pointer is.
    return cell && this.show(cell);
  }

  tipOf(mark: IMark): ITip | null {
    const cell = this.cellOf(mark);
    const tip = cell && this.words(cell).tip;
    if (!cell || !tip) {
      return null;
    }
    const { heading, ...line } = tip;
    const { pinned = null } = this._env;
    const numbers = pinned === null || pinned === this.stepOf(cell) ? null : this.compared(cell, pinned);
    return pinned === null || numbers === null
      ? { heading, lines: [line] }
      : {
          heading,
          columns: pinnedColumns(pinned, this.t),
          lines: [{ ...line, beside: besideWords(...numbers, this.t) }]
        };
  }

  move(key: string): IMoved | null {
    const { at } = this;
    const { xs, ys } = this._drawn;
    const before = at && {
      column: Math.max(0, nearestIndex(xs, at.x)),
      row: Math.max(0, nearestIndex(ys, at.y))
    };
    const isPressed = key === 'Enter' && this.pressed !== undefined;
    const size = { columns: xs.length, rows: ys.length };
    const cell = moveAmongCells(isPressed ? 'copy' : key, before, size, this.firstColumn);
    if (cell === null) {
      return null;
    }
    const mark = this.show(cell);
    this._env.zoom?.reveal(xs[cell.column] ?? 0, ys[cell.row] ?? 0);
    const { said, value } = this.words(cell);
    if (isPressed) {
      this.pressed?.(mark);
    }
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  /** Put the cursor into a cell, and return its mark. */
  show({ column, row }: IGridCell): IMark {
    const { xs, ys } = this._drawn;
    return this.showAt(xs[column] ?? NaN, ys[row] ?? NaN);
  }

  markOf({ column, row }: IGridCell): IMark {
    const { xs, ys } = this._drawn;
    return this.markAt(xs[column] ?? NaN, ys[row] ?? NaN);
  }

  /** Put the cursor into the cell whose middle lies there, and return its mark. */
  showAt(x: number, y: number): IMark {
    this.at = { x, y };
    return this.markAt(x, y);
  }

  /** Put the cursor at the column nearest to a step, and return its mark; null where there is none. */
  goTo(step: number): IMark | null {
    const { axis, xs, ys } = this._drawn;
    const column = nearestIndex(xs, axis?.xOf(step) ?? step);
    const row = Math.max(0, this.at ? nearestIndex(ys, this.at.y) : 0);
    return column < 0 || ys.length === 0 ? null : this.show({ column, row });
  }

  pointedBy(mark: IMark): IPointed {
    const cell = this.cellOf(mark);
    return {
      step: this._drawn.axis?.stepNear((mark.x[0] + mark.x[1]) / 2) ?? null,
      layer: cell && this.layerOf(cell.row)
    };
  }

  marksOf({ layer, step }: IPointed): ILinkedMarks {
    const { axis } = this._drawn;
    const at = step === null || !axis ? null : axis.xOf(step);
    const row = layer === null ? null : this.rowOf(layer);
    return {
      marks: [...(at === null ? [] : [{ facet: null, x: [at, at] as const, y: null }]), ...(row ? [row] : [])]
    };
  }

  /** A whole row; null where the layer is not drawn. */
  rowOf(layer: number): IMark | null {
    const { x, ys } = this._drawn;
    const row = Array.from(ys).findIndex((_, at) => this.layerOf(at) === layer);
    return row < 0 ? null : { facet: null, x, y: around(ys[row] ?? 0) };
  }

  stepAxis(): IStepAxis | undefined {
    const { axis, half } = this._drawn;
    return axis
      ? {
          stepsIn: span => axis.stepsIn(span),
          spanOf: ([first, last]) => [axis.xOf(first) - half, axis.xOf(last) + half]
        }
      : undefined;
  }

  /** The mark of a cell whose middle lies there. */
  markAt(x: number, y: number): IMark {
    const { half } = this._drawn;
    return { facet: null, x: [x - half, x + half], y: around(y) };
  }

  /** The cell of a mark; null where that is of no row, or nothing can be pointed at there. */
  cellOf({ x, y }: IMark): IGridCell | null {
    return y && this.cellAt((x[0] + x[1]) / 2, (y[0] + y[1]) / 2);
  }

  /** How many columns can be pointed at. */
  protected get columns(): number {
    return this._drawn.xs.length;
  }

  protected cellAt(x: number, y: number): IGridCell | null {
    const { xs, ys, half } = this._drawn;
    const [column, row] = [nearestIndex(xs, x), nearestIndex(ys, y)];
    // Edges are sums, which round.
    const isIn = this.snaps || Math.abs((xs[column] ?? NaN) - x) <= half * (1 + 1e-6);
    return column >= 0 && isIn && Math.abs((ys[row] ?? NaN) - y) <= 0.5 ? { column, row } : null;
  }

  /** The step of a cell; null where columns are something else. */
  protected stepOf({ column }: IGridCell): number | null {
    return this._drawn.axis?.stepNear(this._drawn.xs[column] ?? NaN) ?? null;
  }

  private _drawn: Drawn = { x: [0, 1], xs: [], ys: [], half: 0.5, axis: null };
  private readonly _pictures = new Pictures();
}

type Drawn = Required<Pick<IMatrixDrawing, 'x' | 'xs' | 'ys'>> & {
  /** Half the width of a column. */
  readonly half: number;
  readonly axis: StepAxis | null;
};

/** Whether something that is there is not finite. */
function hasUnfinished({ rows, columns, values, missing }: IMatrix): boolean {
  for (let cell = 0; cell < rows * columns; cell += 1) {
    const value = values[cell] ?? NaN;
    // Only finite numbers leave nothing of themselves.
    if (value - value !== 0 && missing?.[cell] !== 1) {
      return true;
    }
  }
  return false;
}
