import { formatInteger, formatNumber, SigmaScale, type ColorScale } from '../../charts';
import type { IMomentGroups, MomentColumn, MomentKey, IMomentIndex } from '../../store/row-moments';
import type { IMark } from '../shared/content';
import { lockedWords } from '../shared/controls';
import { valueWords } from '../kits/lines/line-recipe';
import type { StepAxis } from '../kits/lines/step-axis';
import { hold, extentOf } from '../shared/scale';
import { shortName } from '../shared/short-name';
import type { Translate } from '../shared/translate';
import { omittedWords, optionWords, trustWords } from './captions';
import { groupId } from './line';
import { type IMapCells, type IMapCell, mapRows } from './map-cells';
import { tensorOf } from './name-facts';
import { columnWords, keyWords, type MomentOptions } from './words';

const MOST_LETTERS = 30;

/** What rows and columns of a map are. */
export interface IMapWords {
  readonly rows: readonly MomentColumn[];
  readonly columns: MomentOptions['columns'];
  readonly axis: StepAxis;
  readonly t: Translate;
}

/**
 * A cell of a map: its row, its column, and the row of its groups that is drawn there; -1 where there is
 * none.
 */
export interface IMapPlace {
  readonly row: number;
  readonly column: number;
  readonly at: number;
}

/** A map as it is drawn: where its cells lie, what they are called, and what they say. */
export class DrawnMap {
  constructor(
    readonly groups: IMomentGroups,
    private readonly _xs: Float64Array,
    readonly cells: IMapCells,
    private readonly _words: IMapWords
  ) {}

  get span(): readonly [number, number] {
    const { x, columns, width } = this.cells;
    return [x, x + columns * width];
  }

  get isUnfinished(): boolean {
    const { values, missing } = this.cells;
    return values.some((value, cell) => missing[cell] === 0 && !Number.isFinite(value));
  }

  place(row: number, column: number): IMapPlace {
    const { rows, columns, source } = this.cells;
    const isInside = row >= 0 && row < rows && column >= 0 && column < columns;
    return { row, column, at: (isInside ? source[row * columns + column] : undefined) ?? -1 };
  }

  /** The cell of a mark; null where that is of no row. */
  placeOf({ x, y }: IMark): IMapPlace | null {
    return y && this.place(Math.round((y[0] + y[1]) / 2), this.columnAt((x[0] + x[1]) / 2));
  }

  /** The number of the column at a position of the axis, also outside the map. */
  columnAt(x: number): number {
    return Math.floor((x - this.cells.x) / this.cells.width);
  }

  xOf(column: number): number {
    return this.cells.x + (column + 0.5) * this.cells.width;
  }

  markOf({ row, column }: Pick<IMapPlace, 'column' | 'row'>): IMark {
    const { x, width } = this.cells;
    return { facet: null, x: [x + column * width, x + (column + 1) * width], y: [row - 0.5, row + 0.5] };
  }

  /** The cell of the value of largest magnitude; null where none is finite. */
  get peak(): IMapPlace | null {
    const { value, group } = this.groups;
    let best = -1;
    value.forEach((each, at) => {
      if (Number.isFinite(each) && (best < 0 || Math.abs(each) > Math.abs(value[best] ?? 0))) {
        best = at;
      }
    });
    const column = hold(this.columnAt(this._xs[best] ?? 0), this.cells.columns);
    return best < 0 || extentOf([this.cells.values]) === null
      ? null
      : { row: group[best] ?? 0, column, at: best };
  }

  /** The cell as options name it; null where nothing is drawn. */
  cellOf({ row, column, at }: IMapPlace): IMapCell | null {
    const isOverSteps = this._words.columns === 'step';
    const x = isOverSteps ? (this.groups.step[at] ?? 0) : Math.round(this.xOf(column));
    return at < 0 ? null : { key: this.groups.keys[row] ?? [], x };
  }

  /** Where a chosen cell lies; null where it is not drawn. */
  placeOfCell({ key, x }: IMapCell): IMapPlace | null {
    const { axis, columns } = this._words;
    const row = this.groups.keys.findIndex(each => groupId(each) === groupId(key));
    const column = this.columnAt(columns === 'step' ? axis.xOf(x) : x);
    return row < 0 ? null : this.place(row, hold(column, this.cells.columns));
  }

  /** Name a row: `layer 3`. */
  rowName(row: number): string {
    return keyWords(this.groups.keys[row] ?? [], this._words.rows, this._words.t);
  }

  /** What a row's label reads: the axis says what it is. */
  rowLabel(row: number, most = MOST_LETTERS): string {
    const key: MomentKey = this.groups.keys[row] ?? [];
    const words = key.map(value => (value === null ? this._words.t('none') : String(value)));
    return key.length === 0
      ? this._words.t('all')
      : shortName(words.join(' · '), Math.min(most, MOST_LETTERS));
  }

  /** Name the column of a cell: `step 5`, `rank 3`. */
  columnName({ at, column }: IMapPlace): string {
    const { columns, axis, t } = this._words;
    const x = this.xOf(column);
    return columns === 'step'
      ? t('step %1', formatInteger(at < 0 ? axis.stepNear(x) : (this.groups.step[at] ?? 0)))
      : `${columnWords(columns, t)} ${formatInteger(Math.round(x))}`;
  }

  valueName({ at }: IMapPlace, digits = 9): string {
    const { t } = this._words;
    return at < 0 ? t('no data') : valueWords({ ...this.groups, digits }, at, t);
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

interface IMapSubject {
  readonly map: DrawnMap;
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
  { map, scale, left, locked, by, index, name }: IMapSubject,
  t: Translate
): string[] {
  const { groups, cells } = map;
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
    ...(map.isUnfinished ? [t('Cells in which values are not finite are hatched.')] : []),
    ...trustWords(groups, { ...options, by: [...by] }, t)
  ];
}
