import {
  ColorScale,
  formatInteger,
  lowMagnitude,
  Pictures,
  SigmaScale,
  type IColorLook,
  type IPlace,
  type IRecipe
} from '../../charts';
import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/moment-source';
import type { IPointed } from '../../store/run-link';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { colorRangeControl, goControl, lockedWords } from '../shared/controls';
import { axisTexts } from '../shared/lines/axis-texts';
import { WHOLE_NUMBERS } from '../shared/lines/line-recipe';
import type { ILinkedMarks, IStepAxis } from '../shared/links';
import { besideWords, pinnedColumns } from '../shared/pinned-step';
import { colorStrip, extentOf, lockedRange } from '../shared/scale';
import { emptyState, type IState } from '../shared/states';
import type { ITip } from '../shared/tip';
import type { Translate } from '../shared/translate';
import { gridAcross, type IMapGrid } from './across';
import { drawnSteps, omittedWords, optionWords, trustWords } from './captions';
import { groupId } from './line';
import { valueWords } from '../shared/lines/line-tips';
import { StepAxis } from '../shared/lines/step-axis';
import { hold, moveOf } from '../shared/places';
import { titleWords } from './line-words';
import { cellsOf, type IMapCells } from './map-cells';
import { cellControls } from './map-controls';
import { cellsChosen, mapGrouping, mapRows, toggled, type IMapCell } from './map-options';
import { bandWords, leftWords, whereWords } from './map-words';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { shortName } from '../shared/short-name';
import { axisWords, byWords, columnWords, keyWords } from './words';

/** Most steps that one group brings; of more the extremes of each stretch. */
const MOST_POINTS = 4096;
/** Most rows; layers have one each. */
const MOST_ROWS = 500;
/** Most cells whose lines are drawn, as the options' schema says. */
const MOST_CHOSEN = 20;
/** Pixels of a row, and of the whole. */
const ROW = { height: 15, least: 120, most: 560 };
/** Rows this low have no room for a label each. */
const LABEL_PIXELS = 12;
const MOST_LETTERS = 30;

/** Groups of tensors over steps or samples, or at one step over ranks or layers, as one picture. */
export class MapPane extends MomentPane {
  override pointedBy(mark: IMark): IPointed {
    const x = (mark.x[0] + mark.x[1]) / 2;
    const layer = mark.y === null ? null : this._groups?.keys[Math.round((mark.y[0] + mark.y[1]) / 2)]?.[0];
    const ofRow = this._rows[0] === 'layer' && typeof layer === 'number' ? layer : null;
    return {
      step: this._isOverSteps ? this._axis.stepNear(x) : this._step,
      layer: this.options.columns === 'layer' ? Math.round(x) : ofRow
    };
  }

  override marksOf({ layer, step }: IPointed): ILinkedMarks {
    const { columns } = this.options;
    const xs = [
      ...(step === null || !this._isOverSteps ? [] : [this._axis.xOf(step)]),
      ...(layer === null || columns !== 'layer' ? [] : [layer])
    ];
    const row = layer === null || this._rows[0] !== 'layer' ? -1 : this._rowOf(layer);
    const [cells] = [this._cells];
    return {
      marks: [
        ...xs.map(x => ({ facet: null, x: [x, x] as const, y: null })),
        ...(row < 0 || !cells
          ? []
          : [
              {
                facet: null,
                x: [cells.x, cells.x + cells.columns * cells.width] as const,
                y: [row - 0.5, row + 0.5] as const
              }
            ])
      ]
    };
  }

  override stepAxis(): IStepAxis | undefined {
    return !this._isOverSteps
      ? undefined
      : {
          stepsIn: span => this._axis.stepsIn(span),
          spanOf: ([first, last]) => {
            const half = (this._cells?.width ?? 0) / 2;
            return [this._axis.xOf(first) - half, this._axis.xOf(last) + half];
          }
        };
  }

  override controls(): Control[] {
    const choose = (range: [number, number] | null): void => this.choose({ color_range: range });
    return [
      ...(this._isOverSteps
        ? [goControl(step => this.env.goTo(this._goTo(step)), this.t)]
        : this.stepControls()),
      ...cellControls(this.options, options => this.choose(options), this.t),
      ...(this._domain && this.options.colors === 'continuous'
        ? [colorRangeControl(this.options.color_range, this._domain, choose, this.t)]
        : [])
    ];
  }

  private _goTo(step: number): IMark | null {
    const cells = this._cells;
    if (!cells) {
      return null;
    }
    const column = Math.floor((this._axis.xOf(step) - cells.x) / cells.width);
    this._at = { row: this._at?.row ?? 0, column: hold(column, cells.columns) };
    return this._markOf(this._at.row, this._at.column);
  }

  override get by(): readonly MomentColumn[] {
    return mapGrouping(this.options);
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const placed = await this.axisOf(this.total ?? NOTHING, signal);
    if (placed === null) {
      return this.unknownPlaces();
    }
    const { options } = this;
    this._axis = placed.axis;
    const grid = await (this._isOverSteps ? this._overSteps(reader, signal) : this._across(reader, signal));
    if (grid === null || grid.groups.step.length === 0) {
      return { state: grid !== null && grid.left > 0 ? this._nowhere() : this.nothing() };
    }
    const { groups, xs } = grid;
    const drawn = JSON.stringify(options);
    if (this._read !== grid.of || this._cells === null || this._drawn !== drawn) {
      this._drawn = drawn;
      this._read = grid.of;
      this._groups = groups;
      this._xs = xs;
      const places = [...new Set(xs)].sort((a, b) => a - b);
      const isThin = groups.stepsTotal > drawnSteps(groups);
      this._cells = cellsOf(groups, xs, places, {
        hatch: options.statistic !== 'nonfinite',
        bridge: this._isOverSteps && isThin
      });
    }
    return { content: await this._compose(this._groups ?? groups, this._cells, grid.left, reader, signal) };
  }

  /** Steps are the columns: as many as can be told apart. */
  private async _overSteps(reader: MomentReader, signal: AbortSignal): Promise<IRead> {
    const { options, by } = this;
    const question = this._zoomed(this.question(by, MOST_POINTS));
    const series = options.kind === 'layer_map' ? {} : { series: Math.max(options.series, MOST_ROWS) };
    const groups = await reader.groups({ ...question, ...series }, signal);
    return { of: groups, groups, xs: groups.step.map(step => this._axis.xOf(step)), left: 0 };
  }

  /** Something else is, at one step; null where there is none. */
  private async _across(reader: MomentReader, signal: AbortSignal): Promise<IRead | null> {
    const { wanted, step } = this.stepDrawn();
    if (step === undefined) {
      return null;
    }
    [this._step, this._wanted] = [step, wanted];
    const question = { ...this.question(this.by), smoothing: 0, steps: [step, step] as const };
    const groups = await reader.groups(question, signal);
    return { of: groups, ...gridAcross(groups, MOST_ROWS) };
  }

  /** What to say where no group has a place among the columns. */
  private _nowhere(): IState {
    const words = columnWords(this.options.columns, this.t);
    return emptyState(this.t('Nothing here has a %1.', words), this.t('Draw steps'), () =>
      this.choose({ columns: 'step', cells: [] })
    );
  }

  override probe(place: IPlace): IMark | null {
    const cells = this._cells;
    const row = Math.round(place.y);
    if (!cells || row < 0 || row >= cells.rows) {
      return null;
    }
    return this._markOf(row, Math.floor((place.x - cells.x) / cells.width));
  }

  override tipOf(mark: IMark): ITip | null {
    const [cells, groups] = [this._cells, this._groups];
    if (!cells || !groups || mark.y === null) {
      return null;
    }
    const row = Math.round((mark.y[0] + mark.y[1]) / 2);
    const column = Math.round((mark.x[0] - cells.x) / cells.width);
    const heading = keyWords(groups.keys[row] ?? [], this._rows, this.t);
    const at = cells.source[row * cells.columns + column] ?? -1;
    if (at < 0) {
      return { heading, lines: [{ name: this.t('no data'), value: '' }] };
    }
    const line = { name: this._columnWords(at, column), value: this._valueAt(at) };
    const { pinned } = this.env;
    if (pinned === null || pinned === groups.step[at]) {
      return { heading, lines: [line] };
    }
    const then = groups.step.findIndex((each, place) => each === pinned && groups.group[place] === row);
    const beside = besideWords(groups.value[at] ?? NaN, groups.value[then] ?? NaN, this.t);
    return { heading, columns: pinnedColumns(pinned, this.t), lines: [{ ...line, beside }] };
  }

  /** A cell's line is drawn below, or not any more. */
  override clicked(mark: IMark): void {
    const cell = this._cellAt(mark);
    if (cell) {
      this.choose({ cells: toggled(this.options, cell, MOST_CHOSEN) });
    }
  }

  override pinned(): IMark | null {
    const [cells, last] = [this._cells, cellsChosen(this.options).at(-1)];
    const row = last ? (this._groups?.keys.findIndex(key => groupId(key) === groupId(last.key)) ?? -1) : -1;
    if (!cells || !last || row < 0) {
      return null;
    }
    const x = this._isOverSteps ? this._axis.xOf(last.x) : last.x;
    return this._markOf(row, hold(Math.floor((x - cells.x) / cells.width), cells.columns));
  }

  /** The cell of a mark; null where there is none. */
  private _cellAt(mark: IMark): IMapCell | null {
    const [cells, groups] = [this._cells, this._groups];
    const row = mark.y === null ? -1 : Math.round((mark.y[0] + mark.y[1]) / 2);
    const column = cells ? Math.round((mark.x[0] - cells.x) / cells.width) : -1;
    const at = cells?.source[row * cells.columns + column] ?? -1;
    const key = groups?.keys[row];
    if (!cells || !key || at < 0 || column >= cells.columns) {
      return null;
    }
    return { key, x: this._isOverSteps ? (groups.step[at] ?? 0) : Math.round(this._xOf(column)) };
  }

  /** Where a column lies. */
  private _xOf(column: number): number {
    const { x = 0, width = 1 } = this._cells ?? {};
    return x + (column + 0.5) * width;
  }

  /** Name the column of a cell, by the row of the groups that is drawn in it: `step 5`, `rank 3`. */
  private _columnWords(at: number, column: number): string {
    const { options, t } = this;
    return this._isOverSteps
      ? t(
          'step %1',
          formatInteger(at < 0 ? this._axis.stepNear(this._xOf(column)) : (this._groups?.step[at] ?? 0))
        )
      : `${columnWords(options.columns, t)} ${formatInteger(Math.round(this._xOf(column)))}`;
  }

  override move(key: string): IMoved | null {
    const by = key === 'Enter' ? moveOf('copy') : moveOf(key);
    const [cells, groups] = [this._cells, this._groups];
    if (by === undefined || !cells || !groups) {
      return null;
    }
    const before = this._at;
    const row = hold((before?.row ?? 0) + (before ? by[1] : 0), cells.rows);
    const column = hold((before?.column ?? cells.columns - 1) + (before ? by[0] : 0), cells.columns);
    this._at = { row, column };
    const mark = this._markOf(row, column);
    const name = keyWords(groups.keys[row] ?? [], this._rows, this.t);
    const at = cells.source[row * cells.columns + column] ?? -1;
    const value = at < 0 ? this.t('no data') : this._valueAt(at);
    this.env.zoom?.reveal(cells.x + (column + 0.5) * cells.width, row);
    const said = this.t('%1, %2: %3', this._columnWords(at, column), name, value);
    if (key === 'Enter') {
      this.clicked(mark);
    }
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  private async _compose(
    groups: IMomentGroups,
    cells: IMapCells,
    left: number,
    reader: MomentReader,
    signal: AbortSignal
  ): Promise<IContent> {
    const { options, by, t } = this;
    const bands = options.colors === 'sigma';
    const locked = bands ? null : lockedRange(options.color_range ?? []);
    const unfinished = cells.values.some(
      (value, cell) => cells.missing[cell] === 0 && !Number.isFinite(value)
    );
    const [x0, x1] = [cells.x, cells.x + cells.columns * cells.width];
    const [y0, y1] = [-0.5, cells.rows - 0.5];
    const height = Math.min(ROW.most, Math.max(ROW.least, cells.rows * ROW.height));
    const every = Math.ceil(LABEL_PIXELS / (height / cells.rows));
    const rowAt = Array.from(groups.keys.keys()).filter(row => row % every === 0);
    const subject = { ...options, by: [...by] };
    this._half = this.env.zoom?.isZoomed ? this._half : cells.width / 2;
    const [first, last] = this.env.within(options.steps) ?? [-Infinity, Infinity];
    const xs = Array.from(
      this.steps.filter(step => step >= first && step <= last),
      step => this._axis.xOf(step)
    );
    const whole: [number, number] = this._isOverSteps
      ? [(xs[0] ?? 0) - this._half, (xs[xs.length - 1] ?? 0) + this._half]
      : [x0, x1];
    const recipeIn = (dark: boolean, pictures: Pictures): IRecipe => {
      const scale = this._scaleOf(cells, { dark, range: locked });
      const strip = colorStrip(scale, unfinished, t);
      const picture = pictures.draw(0, cells, scale);
      return {
        template: 'moment-map',
        texts: {
          xLabel: WHOLE_NUMBERS,
          ...(this._isOverSteps
            ? axisTexts(options.align, options.x, this.env, t)
            : { xTitle: columnWords(options.columns, t) }),
          yTitle: byWords(this._rows, t),
          legendTitle: axisWords(options, [], t)
        },
        params: {
          x0,
          x1,
          y0,
          y1,
          rowAt,
          rowText: rowAt.map(row => labelOf(groups.keys[row] ?? [], t)),
          ...strip.params
        },
        datasets: { pictures: [{ ...picture, x: x0, x2: x1, y: y0, y2: y1 }], legend: strip.rows },
        painted: pictures.painted,
        height
      };
    };
    const scale = this._scaleOf(cells, { range: locked });
    this._domain = scale.domain;
    return {
      recipe: recipeIn(this.env.isDark, this._pictures),
      // Only the middle of a scale that has one is another in the dark.
      ...((scale.signed || bands) && { printed: (dark = false) => recipeIn(dark, new Pictures()) }),
      extent: { x: whole, y: [y0, y1] },
      title: titleWords(options, by, groups.step, t),
      caption: [
        ...(this._isOverSteps ? [] : this.nearWords(this._wanted, this._step ?? NaN)),
        ...whereWords(options, t),
        ...bandWords(scale, t),
        ...leftWords(left, options.columns, t),
        ...(cells.merged
          ? [
              t(
                'A column stands for several steps: the one that is not finite or farthest from the middle of its row is drawn.'
              )
            ]
          : []),
        ...omittedWords(groups, this._rows.join() === 'item_type' ? t('item types') : t('rows'), t),
        ...(options.runs.length > 0
          ? [t('This map shows %1 only; choose lines, or layers at a step, to compare.', this.source.name)]
          : []),
        ...optionWords(options, this.index, t),
        ...lockedWords(locked, [cells.values], t),
        ...(unfinished ? [t('Cells in which values are not finite are hatched.')] : []),
        ...trustWords(groups, subject, t)
      ],
      summary: this._summary(groups, cells),
      notes: await this.notes(reader, signal)
    };
  }

  private _scaleOf(cells: IMapCells, look: IColorLook): ColorScale {
    const { transform } = this.options;
    const low = transform === 'log' && this._groups ? lowMagnitude([this._groups.value]) : NaN;
    const extent = extentOf([cells.values]);
    return this.options.colors === 'sigma'
      ? new SigmaScale(cells.values, extent, transform, low, look)
      : new ColorScale(extent, transform, low, look);
  }

  /** Ask for what is shown, and as much again on either side, where not every step could be brought. */
  private _zoomed(question: ReturnType<MomentPane['question']>): ReturnType<MomentPane['question']> {
    const { zoom } = this.env;
    if (!zoom?.isZoomed || !this._groups) {
      return question;
    }
    const { x0, x1 } = zoom.domain;
    const steps = this._axis.stepsIn([x0 - (x1 - x0), x1 + (x1 - x0)]);
    const leftOut = this.steps.length > MOST_POINTS / 4;
    return steps && leftOut ? { ...question, steps } : question;
  }

  override insight(): IMark | null {
    const { _groups: groups, _cells: cells } = this;
    const best = groups ? peakOf(groups) : -1;
    if (!groups || !cells || best < 0) {
      return null;
    }
    return this._markOf(groups.group[best] ?? 0, this._columnOf(best, cells));
  }

  private _summary(groups: IMomentGroups, cells: IMapCells): string {
    const best = peakOf(groups);
    const range = extentOf([cells.values]);
    if (best < 0 || range === null) {
      return this.t('No value is finite.');
    }
    return this.t(
      'The largest magnitude, %1, is at %2 in %3.',
      this._valueAt(best),
      this._columnWords(best, this._columnOf(best, cells)),
      keyWords(groups.keys[groups.group[best] ?? 0] ?? [], this._rows, this.t)
    );
  }

  /** The column that a row of the groups is in. */
  private _columnOf(at: number, { x, width, columns }: IMapCells): number {
    return hold(Math.floor(((this._xs[at] ?? 0) - x) / width), columns);
  }

  private _valueAt(row: number): string {
    return this._groups ? valueWords({ ...this._groups, digits: 9 }, row, this.t) : '';
  }

  private _markOf(row: number, column: number): IMark {
    const { x = 0, width = 1 } = this._cells ?? {};
    return { facet: null, x: [x + column * width, x + (column + 1) * width], y: [row - 0.5, row + 0.5] };
  }

  private _rowOf(layer: number): number {
    return this._groups?.keys.findIndex(([key]) => key === layer) ?? -1;
  }

  private get _isOverSteps(): boolean {
    return this.options.columns === 'step';
  }

  /** Columns that make a row. */
  private get _rows(): readonly MomentColumn[] {
    return mapRows(this.options);
  }

  private _axis = new StepAxis([]);
  private _step: number | null = null;
  private _wanted: number | null = null;
  /** What was read, and that as rows of the map. */
  private _read: IMomentGroups | null = null;
  private _groups: IMomentGroups | null = null;
  private _xs: Float64Array = new Float64Array();
  private _cells: IMapCells | null = null;
  private _drawn = '';
  private _domain: readonly [number, number] | null = null;
  private _half = 0.5;
  private _at: { row: number; column: number } | null = null;
  private readonly _pictures = new Pictures();
}

/** What a map is drawn of. */
interface IRead extends IMapGrid {
  /** What came from the run: the same object while that is the same. */
  readonly of: IMomentGroups;
}

const NOTHING = { step: new Float64Array(), samples: new Float64Array() };

/** What a row is called beside it: the axis says what it is. */
function labelOf(key: MomentKey, t: Translate): string {
  const words = key.map(value => (value === null ? t('none') : String(value)));
  return key.length === 0 ? t('all') : shortName(words.join(' · '), MOST_LETTERS);
}

/** Place of the value of largest magnitude; -1 where none is finite. */
function peakOf({ value }: IMomentGroups): number {
  return value.reduce(
    (best, each, at) =>
      Number.isFinite(each) && (best < 0 || Math.abs(each) > Math.abs(value[best] ?? 0)) ? at : best,
    -1
  );
}
