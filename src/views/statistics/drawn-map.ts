import { formatInteger, formatNumber, SigmaScale, type ColorScale } from '../../charts';
import type { IMomentGroups, MomentColumn, MomentKey, IMomentIndex } from '../../store/row-moments';
import type { IContent, IMark } from '../shared/content';
import { lockedWords } from '../shared/controls';
import { valueWords } from '../kits/lines/line-recipe';
import type { StepAxis } from '../kits/lines/step-axis';
import { MatrixPicture, type ICellWords, type IMatrixDrawing } from '../kits/matrix/matrix-picture';
import { labelledRows } from '../shared/row-places';
import { extentOf, hold, type IGridCell } from '../shared/scale';
import { shortName } from '../shared/short-name';
import type { Translate } from '../shared/translate';
import type { IViewEnvironment } from '../shared/view-model';
import { omittedWords, optionWords, trustWords } from './captions';
import { groupId } from './line';
import { type IMapCells, type IMapCell, mapRows } from './map-cells';
import { tensorOf } from './name-facts';
import { columnWords, keyWords, type MomentOptions } from './words';

/** Most letters of a row's name, pixels of one, and how many a name has at least. */
const [MOST_LETTERS, LETTER, LEAST_LETTERS] = [30, 6, 12];
/** Pixels of a row, and of the whole. */
const ROW = { each: 15, least: 120, most: 560 };

/** Groups as cells, and what rows and columns are. */
export interface IMapRead {
  readonly groups: IMomentGroups;
  /** Where each row of the groups lies across. */
  readonly xs: Float64Array;
  readonly cells: IMapCells;
  readonly rows: readonly MomentColumn[];
  readonly columns: MomentOptions['columns'];
  readonly axis: StepAxis;
}

/** How a map is drawn. */
type MapLook = Pick<IMatrixDrawing, 'scaleOf' | 'texts' | 'whole'> & {
  /** Pixels that the whole picture may take. */
  readonly width: number;
};

/** A cell with the row of its groups that is drawn there; -1 where there is none. */
export interface IMapPlace extends IGridCell {
  readonly at: number;
}

/** A map of groups: where its cells lie, what they are called, and what they say. */
export class DrawnMap extends MatrixPicture {
  /** @param _press - Called with the mark of a cell at which Enter was pressed. */
  constructor(
    t: Translate,
    env: Pick<IViewEnvironment, 'pinned' | 'zoom'>,
    private readonly _press: (mark: IMark) => void
  ) {
    super(t, env);
  }

  protected override firstColumn = Infinity;

  read: IMapRead | null = null;

  draw(
    read: IMapRead,
    { width, ...look }: MapLook,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    this.read = read;
    const { axis, cells, columns } = read;
    // Names take a third of a narrow picture at most.
    const letters = Math.max(LEAST_LETTERS, Math.floor(width / 3 / LETTER));
    return this.paint(
      {
        ...look,
        cells,
        template: 'moment-map',
        ...labelledRows(cells.rows, ROW, row => this._rowLabel(row, letters)),
        x: [cells.x, cells.x + cells.columns * cells.width],
        width: cells.width,
        ...(columns === 'step' && { axis })
      },
      isDark
    );
  }

  place({ row, column }: IGridCell): IMapPlace {
    const { columns = 0, source } = this.read?.cells ?? {};
    return { row, column, at: source?.[row * columns + column] ?? -1 };
  }

  /** The cell of a mark; null where that is of none. */
  placeOf(mark: IMark): IMapPlace | null {
    const cell = this.cellOf(mark);
    return cell && this.place(cell);
  }

  /** The cell of the value of largest magnitude; null where none is finite. */
  get peak(): IMapPlace | null {
    const { read } = this;
    if (!read || extentOf([read.cells.values]) === null) {
      return null;
    }
    const { value, group } = read.groups;
    let best = -1;
    value.forEach((each, at) => {
      if (Number.isFinite(each) && (best < 0 || Math.abs(each) > Math.abs(value[best] ?? 0))) {
        best = at;
      }
    });
    return best < 0 ? null : { row: group[best] ?? 0, column: this._columnAt(read.xs[best] ?? 0), at: best };
  }

  /** The cell as options name it; null where nothing is drawn. */
  cellNamed({ row, column, at }: IMapPlace): IMapCell | null {
    const { groups, columns } = this.read ?? {};
    const x = columns === 'step' ? (groups?.step[at] ?? 0) : Math.round(this._xOf(column));
    return at < 0 ? null : { key: groups?.keys[row] ?? [], x };
  }

  /** Mark a chosen cell; null where it is not drawn. */
  markOfCell({ key, x }: IMapCell): IMark | null {
    const { axis, columns, groups } = this.read ?? {};
    const row = groups?.keys.findIndex(each => groupId(each) === groupId(key)) ?? -1;
    const column = this._columnAt(columns === 'step' ? (axis?.xOf(x) ?? x) : x);
    return row < 0 ? null : this.markOf({ row, column });
  }

  /** Name a row: `layer 3`. */
  rowName(row: number): string {
    return keyWords(this.read?.groups.keys[row] ?? [], this.read?.rows ?? [], this.t);
  }

  /** Name the column of a cell: `step 5`, `rank 3`. */
  columnName({ at, column }: IMapPlace): string {
    const { t } = this;
    const { axis, columns = 'step', groups } = this.read ?? {};
    const x = this._xOf(column);
    return columns === 'step'
      ? t('step %1', formatInteger((at < 0 ? axis?.stepNear(x) : groups?.step[at]) ?? 0))
      : `${columnWords(columns, t)} ${formatInteger(Math.round(x))}`;
  }

  valueName({ at }: IMapPlace, digits = 9): string {
    const { read, t } = this;
    return at < 0 || !read ? t('no data') : valueWords({ ...read.groups, digits }, at, t);
  }

  protected words(cell: IGridCell): ICellWords {
    const place = this.place(cell);
    const [heading, name, value] = [this.rowName(cell.row), this.columnName(place), this.valueName(place)];
    return {
      tip: { heading, lines: [place.at < 0 ? { name: this.t('no data'), value: '' } : { name, value }] },
      said: this.t('%1, %2: %3', name, heading, value),
      value
    };
  }

  protected override pressed(mark: IMark): void {
    this._press(mark);
  }

  protected override layerOf(row: number): number | null {
    const [layer] = this.read?.groups.keys[row] ?? [];
    return this.read?.rows[0] === 'layer' && typeof layer === 'number' ? layer : null;
  }

  protected override stepOf(cell: IGridCell): number | null {
    return this.read?.groups.step[this.place(cell).at] ?? null;
  }

  protected override compared(cell: IGridCell, pinned: number): readonly [number, number] | null {
    const { at } = this.place(cell);
    if (at < 0 || this.read?.columns !== 'step') {
      return null;
    }
    const { group, step, value } = this.read.groups;
    const then = step.findIndex((each, other) => each === pinned && group[other] === cell.row);
    return [value[at] ?? NaN, value[then] ?? NaN];
  }

  /** What a row's label reads: the axis says what it is. */
  private _rowLabel(row: number, most: number): string {
    const key: MomentKey = this.read?.groups.keys[row] ?? [];
    const words = key.map(value => (value === null ? this.t('none') : String(value)));
    return key.length === 0 ? this.t('all') : shortName(words.join(' · '), Math.min(most, MOST_LETTERS));
  }

  private _columnAt(x: number): number {
    const { x: from = 0, width = 1, columns = 1 } = this.read?.cells ?? {};
    return hold(Math.floor((x - from) / width), columns);
  }

  private _xOf(column: number): number {
    const { x = 0, width = 1 } = this.read?.cells ?? {};
    return x + (column + 0.5) * width;
  }
}

/** Say of which ranks, and of which tensors by their names, a map is. */
function whereWords({ where }: Pick<MomentOptions, 'where'>, t: Translate): string[] {
  const { rank = 'all', name } = where ?? {};
  const tensor = name === undefined ? null : tensorOf(name);
  return [
    ...(rank === 'all'
      ? []
      : [/^\d+$/.test(rank) ? t('Of rank %1 only.', rank) : t('Of ranks %1 only.', rank)]),
    ...(name === undefined
      ? []
      : [tensor === null ? t('Of tensors whose names have ‘%1’ only.', name) : t('Of %1 only.', tensor)])
  ];
}

/** Say what bands of colours are. */
function bandWords(scale: ColorScale, t: Translate): string[] {
  if (!(scale instanceof SigmaScale)) {
    return [];
  }
  return scale.transform === 'log'
    ? [
        t(
          'A colour says how many standard deviations (σ) the logarithm of a cell lies from their mean, %1.',
          formatNumber(scale.mean, 3)
        )
      ]
    : [
        t(
          'A colour says how many standard deviations (σ) a cell lies from the mean of all, %1.',
          formatNumber(scale.mean, 3)
        )
      ];
}

/** Say how much has no column. */
export function leftWords(left: number, column: MomentColumn | 'step', t: Translate): string[] {
  return left === 0 || column === 'step'
    ? []
    : [t('Groups without a %1 are left out: %2.', columnWords(column, t), formatInteger(left))];
}

interface IMapSubject extends Pick<IMapRead, 'cells' | 'groups'> {
  /** Whether something that is drawn is not finite. */
  readonly isUnfinished: boolean;
  readonly scale: ColorScale;
  /** Groups without a column. */
  readonly left: number;
  readonly locked: readonly [number, number] | null;
  readonly by: readonly MomentColumn[];
  readonly index: IMomentIndex | null;
  readonly name: string;
}

/** Say what of a map is not literal. */
export function mapCaption(
  options: MomentOptions,
  { groups, cells, isUnfinished, scale, left, locked, by, index, name }: IMapSubject,
  t: Translate
): string[] {
  return [
    ...whereWords(options, t),
    ...bandWords(scale, t),
    ...leftWords(left, options.columns, t),
    ...(cells.merged
      ? [
          t(
            'A column stands for several steps: the one that is not finite, the largest of all, or else the one farthest from the middle of its row is drawn.'
          )
        ]
      : []),
    ...omittedWords(groups, mapRows(options).join() === 'item_type' ? t('item types') : t('rows'), t),
    ...(options.runs.length > 0
      ? [t('This map shows %1 only; choose lines, or layers at a step, to compare.', name)]
      : []),
    ...optionWords(options, index, t),
    ...lockedWords(locked, [cells.values], t),
    ...(isUnfinished ? [t('Cells in which values are not finite are hatched.')] : []),
    ...trustWords(groups, { ...options, by: [...by] }, t)
  ];
}
