import { ColorScale, formatFull, formatInteger, formatNumber, lowMagnitude, middleOf } from '../../charts';
import { firstIndex } from '../../protocol/records';
import type { TrendOptions } from '../../protocol/views.generated';
import type { IStreamRows } from '../../store/row-store';
import type { IContent, IMark } from '../shared/content';
import type { Control } from '../shared/control';
import { colorRangeControl, goControl, lockedWords, transformControl } from '../shared/controls';
import type { IViewDefinition } from '../shared/definition';
import type { IStepAxis } from '../shared/links';
import { logNotes } from '../shared/robust-range';
import { labelledRows } from '../shared/row-places';
import { extentOf, indexBefore, lockedRange, nearestIndex, type IGridCell } from '../shared/scale';
import { shortName } from '../shared/short-name';
import { columnOf, KitView, saidOf, type Drawn, type IKit, type Said } from './kit';
import { WHOLE_NUMBERS } from './lines/line-recipe';
import { StepAxis } from './lines/step-axis';
import { MatrixPicture, type ICellWords } from './matrix/matrix-picture';
import { cellsOverSteps, type IStepCells } from './matrix/over-steps';

/** Options that a view of a matrix has beside its own; see `kitOptions`. */
export type KitMatrixOptions = Pick<Required<TrendOptions>, 'color_range' | 'steps' | 'transform'>;

/** A row as a view gives it. */
export interface IGridRow {
  readonly name: string;
  /** Steps, or numbers of columns, at which it has a value. */
  readonly at: ArrayLike<number>;
  /** What is not finite is hatched; where nothing is, the cell stays blank. */
  readonly values: ArrayLike<number>;
  /** Layer that it is of: the row is marked where another view points at the layer. */
  readonly layer?: number;
}

/** A grid of values, from top to bottom. */
export interface IGrid {
  readonly rows: readonly IGridRow[];
  /** Names of the columns; absent where columns are steps. */
  readonly columns?: readonly string[];
}

export interface IMatrixKit<O extends object> extends IKit<O, IGrid> {
  /** What the values are: the title of their colours. */
  readonly quantity: Said<O>;
  /** What a row is, and what a column is where that is no step. */
  readonly row: string;
  readonly column?: string;
}

/** Pixels of a row, and of the whole. */
const ROW = { each: 16, least: 120, most: 560 };
/** Most letters of the name of a row and of a column, and pixels of one. */
const [ROW_LETTERS, COLUMN_LETTERS, LETTER] = [30, 14, 7];

/** A value of a grid, and where it is. */
interface IAt {
  readonly row: number;
  readonly at: number;
  readonly value: number;
  /** The middle of its row. */
  readonly middle: number;
}

const awayOf = (found: IAt | undefined): number => (found ? Math.abs(found.value - found.middle) : 0);

/** A grid as it is drawn. */
class GridPicture extends MatrixPicture {
  protected override firstColumn = Infinity;
  protected override readonly snaps = true;

  grid: IGrid = { rows: [] };

  /** Whether a column stands for several steps. */
  isMerged = false;

  /** First and last step. */
  get stepsDrawn(): [number, number] {
    return [this._places[0] ?? 0, this._places[this._places.length - 1] ?? 0];
  }

  get values(): readonly ArrayLike<number>[] {
    return this.grid.rows.map(({ values }) => values);
  }

  draw(
    grid: IGrid,
    words: { readonly quantity: string; readonly row: string; readonly column: string },
    { transform, color_range: locked }: KitMatrixOptions,
    isDark: boolean,
    shown: readonly [number, number] | null
  ): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    this.grid = grid;
    const { t, values } = this;
    const { columns, rows } = grid;
    const whole = cellsOf(grid);
    // Of more steps than columns those that are looked at, and as many on either side, have their own.
    const across = shown ? shown[1] - shown[0] : 0;
    const part = shown && whole.merged ? cutGrid(grid, shown[0] - across, shown[1] + across) : null;
    const cells = part && isFilled(part) ? cellsOf(part) : whole;
    [this._places, this.isMerged] = [whole.steps, cells.merged];
    const low = transform === 'log' ? lowMagnitude(values) : NaN;
    const range = lockedRange(locked ?? []);
    const names = (columns ?? []).map(name => shortName(name, COLUMN_LETTERS));
    const { height, params } = labelledRows(rows.length, ROW, row =>
      shortName(rows[row]?.name ?? '', ROW_LETTERS)
    );
    return this.paint(
      {
        cells,
        scaleOf: dark => new ColorScale(extentOf(values), transform, low, { dark, range }),
        template: columns ? 'token-map' : 'moment-map',
        texts: {
          ...(columns
            ? { xTitle: words.column, ...nameTicks(names) }
            : { xTitle: t('step'), xLabel: WHOLE_NUMBERS }),
          yTitle: words.row,
          legendTitle: words.quantity
        },
        params: { ...params, ...(columns && { labels: names }) },
        height,
        x: cells.x,
        whole: whole.x,
        xs: whole.steps,
        width: cells.spacing,
        ...(!columns && { axis: new StepAxis(whole.steps) })
      },
      isDark
    );
  }

  /** What is seen in it: its extremes, and what is not finite first; undefined where there is none. */
  private _seen(): {
    readonly unfinished: number;
    readonly first: IAt | undefined;
    readonly least: IAt | undefined;
    readonly most: IAt | undefined;
    /** Farthest from the middle of its row. */
    readonly farthest: IAt | undefined;
  } {
    let unfinished = 0;
    let [first, least, most, farthest]: (IAt | undefined)[] = [];
    this.grid.rows.forEach(({ at: places, values }, row) => {
      const middle = middleOf(values, Infinity);
      for (let index = 0; index < values.length; index += 1) {
        const found = { row, at: places[index] ?? NaN, value: values[index] ?? NaN, middle };
        if (!Number.isFinite(found.value)) {
          unfinished += 1;
          first = first && first.at <= found.at ? first : found;
        } else {
          least = least && least.value <= found.value ? least : found;
          most = most && most.value >= found.value ? most : found;
          farthest = awayOf(farthest) >= awayOf(found) ? farthest : found;
        }
      }
    });
    return { unfinished, first, least, most, farthest };
  }

  /** Put the cursor where something is not finite, or else departs most, and return its mark. */
  insight(): IMark | null {
    const { first, farthest, most } = this._seen();
    const found = first ?? farthest ?? most;
    return found ? this.showAt(found.at, found.row) : null;
  }

  /** Say what is seen, a sentence each. */
  get summary(): string {
    const { t } = this;
    const { unfinished, first, least, most, farthest } = this._seen();
    const at = (found: IAt): [string, string, string] => [
      formatNumber(found.value),
      this._columnName(found.at),
      this.grid.rows[found.row]?.name ?? ''
    ];
    return [
      ...(first
        ? [
            t(
              'Cells that are not finite: %1, the first at %2 in %3.',
              formatInteger(unfinished),
              ...at(first).slice(1)
            )
          ]
        : []),
      ...(least && most
        ? [
            t(
              'The largest value, %1, is at %2 in %3; the smallest, %4, at %5 in %6.',
              ...at(most),
              ...at(least)
            )
          ]
        : [t('No value is finite.')]),
      ...(farthest
        ? [
            t(
              'Farthest from the middle of its row, %1, is %2 at %3 in %4.',
              formatNumber(farthest.middle),
              ...at(farthest)
            )
          ]
        : [])
    ].join(' ');
  }

  protected words({ column, row }: IGridCell): ICellWords {
    const { t } = this;
    const place = this._places[column] ?? NaN;
    const [heading, name] = [this.grid.rows[row]?.name ?? '', this._columnName(place)];
    const found = this._valueAt(row, place);
    const value = found === undefined ? t('no value') : formatFull(Number(found.toPrecision(9)));
    return { tip: { heading, lines: [{ name, value }] }, said: t('%1, %2: %3', name, heading, value), value };
  }

  protected override layerOf(row: number): number | null {
    return this.grid.rows[row]?.layer ?? null;
  }

  protected override compared({ column, row }: IGridCell, pinned: number): readonly [number, number] | null {
    const now = this._valueAt(row, this._places[column] ?? NaN);
    return now === undefined || this.grid.columns ? null : [now, this._valueAt(row, pinned) ?? NaN];
  }

  private _valueAt(row: number, place: number): number | undefined {
    const { at = [], values = [] } = this.grid.rows[row] ?? {};
    const index = nearestIndex(at, place);
    return at[index] === place ? values[index] : undefined;
  }

  private _columnName(place: number): string {
    return this.grid.columns?.[place] ?? this.t('step %1', formatInteger(place));
  }

  private _places: readonly number[] = [];
}

const cellsOf = ({ columns, rows }: IGrid): IStepCells =>
  cellsOverSteps(
    rows.map(({ at, values }) => ({ steps: at, values })),
    columns && Array.from(columns.keys())
  );

/** The part of a grid in some steps. */
const cutGrid = (grid: IGrid, first: number, last: number): IGrid => ({
  ...grid,
  rows: grid.rows.map(row => {
    const from = firstIndex(row.at.length, index => (row.at[index] ?? NaN) >= first);
    const to = indexBefore(row.at, last) + 1;
    const part = (all: ArrayLike<number>): number[] => Array.prototype.slice.call(all, from, to) as number[];
    return { ...row, at: part(row.at), values: part(row.values) };
  })
});

const isFilled = ({ rows }: IGrid): boolean => rows.some(({ at }) => at.length > 0);

/** Names under as many columns as have room for theirs: each one, each second one, and so on. */
function nameTicks(names: readonly string[]): { readonly xTicks: string; readonly xLabel: string } {
  const room = LETTER * (1 + names.reduce((most, { length }) => Math.max(most, length), 1));
  const every = `max(1, ceil(${room} * (x1 - x0) / cell_width))`;
  return {
    xTicks: `sequence(${every} * ceil(x0 / ${every}), x1, ${every})`,
    xLabel: "labels[datum.value] != null ? labels[datum.value] : ''"
  };
}

/** A matrix of any rows, with all that those of the house have. */
class MatrixView<O extends KitMatrixOptions> extends KitView<O, IGrid, IMatrixKit<O>> {
  override controls(): Control[] {
    const { options, t, _picture: picture } = this;
    const choose = (change: Partial<KitMatrixOptions>): void => this.choose(change as Partial<O>);
    return [
      ...super.controls(),
      transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
      ...(picture.grid.columns ? [] : [goControl(step => this.env.goTo(picture.goTo(step)), t)]),
      ...colorRangeControl(options.color_range, picture.domain, choose, () => picture.values, t)
    ];
  }

  override insight(): IMark | null {
    return this._picture.insight();
  }

  override stepAxis(): IStepAxis | undefined {
    return this._picture.stepAxis();
  }

  protected override get drawn(): GridPicture {
    return this._picture;
  }

  protected override within(grid: IGrid, steps: readonly [number, number] | null): IGrid | null {
    const found = steps === null || grid.columns ? grid : cutGrid(grid, steps[0], steps[1]);
    return isFilled(found) ? found : null;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  protected draw(grid: IGrid): Drawn {
    const { env, kit, options, t, _picture: picture } = this;
    const { color_range: locked, transform } = options;
    const { row, column = '' } = kit;
    const words = { quantity: saidOf(kit.quantity, options), row, column };
    const { x0 = 0, x1 = 0 } = env.zoom?.domain ?? {};
    const drawn = picture.draw(grid, words, options, env.isDark, env.zoom?.isZoomed ? [x0, x1] : null);
    const { values } = picture;
    const [first = '', last = ''] = picture.stepsDrawn.map(formatInteger);
    return {
      ...drawn,
      ...(!grid.columns && {
        title: t(first === last ? '%1, step %2' : '%1, steps %2 to %3', this.subject, first, last)
      }),
      caption: [
        ...(picture.isMerged
          ? [
              t(
                'A column stands for several steps: the one that is not finite, the largest of all, or else the one farthest from the middle of its row is drawn.'
              )
            ]
          : []),
        ...lockedWords(locked, values, t),
        ...(picture.isUnfinished ? [t('Cells in which values are not finite are hatched.')] : [])
      ],
      notes: locked ? [] : logNotes(values, transform, change => this.choose(change as Partial<O>), t),
      summary: picture.summary
    };
  }

  private readonly _picture: GridPicture = new GridPicture(this.t, this.env);
}

/** A view of a grid of values, as colours. */
export const matrix = <O extends KitMatrixOptions>(kit: IMatrixKit<O>): IViewDefinition<O> => ({
  create: (source, env) => new MatrixView(source, env, kit)
});

/**
 * Rows of a stream as a grid: a row for each value of the column `row`, over steps, or over the values of the
 * column `column`. Where a cell comes several times, the last one counts.
 *
 * @param names - Names of the columns that tell rows apart, lie across, and hold the values; and of that
 * which holds the layer of a row, where there is one.
 */
export function matrixOf(
  table: IStreamRows,
  names: { readonly row: string; readonly value: string; readonly layer?: string } & (
    { readonly step: string } | { readonly column: string }
  )
): IGrid {
  const isNamed = 'column' in names;
  const [rows, across, values] = [
    columnOf(table, names.row),
    columnOf(table, isNamed ? names.column : names.step),
    columnOf(table, names.value)
  ];
  const layers = columnOf(table, names.layer);
  const places = new Map<string, number>();
  const found = new Map<string, Map<number, number>>();
  const layerOf = new Map<string, number>();
  for (let row = 0; row < table.length; row += 1) {
    const [name, place, value] = [String(rows?.[row] ?? ''), across?.[row], values?.[row]];
    const cells = found.get(name) ?? new Map<number, number>();
    found.set(name, cells);
    if (layers) {
      layerOf.set(name, Number(layers[row]));
    }
    if (isNamed) {
      const column = String(place ?? '');
      places.set(column, places.get(column) ?? places.size);
    }
    if (value !== null && value !== undefined) {
      cells.set(isNamed ? (places.get(String(place ?? '')) ?? 0) : Number(place), Number(value));
    }
  }
  return {
    rows: [...found].map(([name, cells]) => {
      const sorted = [...cells].sort(([a], [b]) => a - b);
      const layer = layerOf.get(name);
      return {
        name,
        at: sorted.map(([at]) => at),
        values: sorted.map(([, value]) => value),
        ...(layer !== undefined && { layer })
      };
    }),
    ...(isNamed && { columns: [...places.keys()] })
  };
}
