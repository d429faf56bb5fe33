import type { IColorLook, IPlace, IRecipe } from '../../charts';
import { ColorScale, lowMagnitude, Pictures, SigmaScale } from '../../charts';
import type { IMomentGroups, MomentColumn } from '../../store/row-moments';
import type { IPointed } from '../../store/run-link';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { colorRangeControl, goControl } from '../shared/controls';
import { WHOLE_NUMBERS } from '../kits/lines/line-recipe';
import { axisTexts, StepAxis } from '../kits/lines/step-axis';
import type { ILinkedMarks, IStepAxis } from '../shared/links';
import { besideWords, pinnedColumns } from '../shared/pinned-step';
import { rowPlaces } from '../shared/row-places';
import { hold, moveAmongCells, type IGridCell, colorStrip, extentOf, lockedRange } from '../shared/scale';
import { emptyState, type IState } from '../shared/states';
import { logNotes } from '../shared/robust-range';
import type { ITip } from '../shared/table';
import { gridAcross, type IMapGrid } from './read-lines';
import { drawnSteps } from './captions';
import { DrawnMap, mapCaption } from './drawn-map';
import { drawnValues, spans, startsOf } from './line';
import { titleWords, toldWords } from './line-words';
import { cellsOf, cellsChosen, mapGrouping, mapRows, MOST_POINTS, toggled } from './map-cells';
import { cellControls } from './moment-controls';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { axisWords, byWords, columnWords } from './words';
import { capital } from '../shared/describe';

/** Most rows; layers have one each. */
const MOST_ROWS = 500;
/** Pixels of a letter of a row's name, and how many letters a name has at least. */
const [LETTER, LEAST_LETTERS] = [6, 12];
/** Cells of a map up to which it is said what its rows did. */
const MOST_TOLD = 200_000;
/** Most cells whose lines are drawn, as the options' schema says. */
const MOST_CHOSEN = 20;
/** Pixels of a row, and of the whole. */
const ROW = { each: 15, least: 120, most: 560 };

/** Groups of tensors over steps or samples, or at one step over ranks or layers, as one picture. */
export class MapPane extends MomentPane {
  override pointedBy(mark: IMark): IPointed {
    const x = (mark.x[0] + mark.x[1]) / 2;
    const row = this._map?.placeOf(mark)?.row ?? -1;
    const layer = this._map?.groups.keys[row]?.[0];
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
    const isRow = layer !== null && this._rows[0] === 'layer';
    const row = isRow ? (this._map?.groups.keys.findIndex(([key]) => key === layer) ?? -1) : -1;
    return {
      marks: [
        ...xs.map(x => ({ facet: null, x: [x, x] as const, y: null })),
        ...(row < 0 || !this._map
          ? []
          : [{ facet: null, x: this._map.span, y: [row - 0.5, row + 0.5] as const }])
      ]
    };
  }

  override stepAxis(): IStepAxis | undefined {
    return !this._isOverSteps
      ? undefined
      : {
          stepsIn: span => this._axis.stepsIn(span),
          spanOf: ([first, last]) => {
            const half = (this._map?.cells.width ?? 0) / 2;
            return [this._axis.xOf(first) - half, this._axis.xOf(last) + half];
          }
        };
  }

  override controls(): Control[] {
    return [
      ...(this._isOverSteps
        ? [goControl(step => this.env.goTo(this._goTo(step)), this.t)]
        : this.stepControls()),
      ...cellControls(this.options, options => this.choose(options), this.t),
      ...colorRangeControl(
        this.options.color_range,
        this.options.colors === 'continuous' ? this._domain : null,
        options => this.choose(options),
        () => (this._map ? [this._map.cells.values] : []),
        this.t
      )
    ];
  }

  private _goTo(step: number): IMark | null {
    const map = this._map;
    if (!map) {
      return null;
    }
    const column = hold(map.columnAt(this._axis.xOf(step)), map.cells.columns);
    this._at = { row: this._at?.row ?? 0, column };
    return map.markOf(this._at);
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
    if (this._read !== grid.of || this._map === null || this._drawn !== drawn) {
      this._drawn = drawn;
      this._read = grid.of;
      const places = [...new Set(xs)].sort((a, b) => a - b);
      const isThin = groups.stepsTotal > drawnSteps(groups);
      const cells = cellsOf(groups, xs, places, {
        hatch: options.statistic !== 'nonfinite',
        bridge: this._isOverSteps && isThin
      });
      const words = { rows: this._rows, columns: options.columns, axis: this._axis, t: this.t };
      this._map = new DrawnMap(groups, xs, cells, words);
    }
    return { content: await this._compose(this._map, grid.left, reader, signal) };
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

  /** What to say where no group has a column. */
  private _nowhere(): IState {
    const words = columnWords(this.options.columns, this.t);
    return emptyState(this.t('Nothing here has a %1.', words), this.t('Draw steps'), () =>
      this.choose({ columns: 'step', cells: [] })
    );
  }

  override probe(point: IPlace): IMark | null {
    const map = this._map;
    const row = Math.round(point.y);
    return map && row >= 0 && row < map.cells.rows
      ? map.markOf({ row, column: map.columnAt(point.x) })
      : null;
  }

  override tipOf(mark: IMark): ITip | null {
    const map = this._map;
    const place = map?.placeOf(mark);
    if (!map || !place) {
      return null;
    }
    const { row, at } = place;
    const heading = map.rowName(row);
    if (at < 0) {
      return { heading, lines: [{ name: this.t('no data'), value: '' }] };
    }
    const { step, value, group } = map.groups;
    const line = { name: map.columnName(place), value: map.valueName(place) };
    const { pinned } = this.env;
    if (pinned === null || pinned === step[at] || !this._isOverSteps) {
      return { heading, lines: [line] };
    }
    const then = step.findIndex((each, other) => each === pinned && group[other] === row);
    const comparison = besideWords(value[at] ?? NaN, value[then] ?? NaN, this.t);
    return { heading, columns: pinnedColumns(pinned, this.t), lines: [{ ...line, beside: comparison }] };
  }

  /** A cell's line is drawn below, or not any more. */
  override clicked(mark: IMark): void {
    const place = this._map?.placeOf(mark);
    const cell = place && this._map?.cellOf(place);
    if (cell) {
      this.choose({ cells: toggled(this.options, cell, MOST_CHOSEN) });
    }
  }

  override pinned(): IMark | null {
    const last = cellsChosen(this.options).at(-1);
    const place = last && this._map?.placeOfCell(last);
    return place && this._map ? this._map.markOf(place) : null;
  }

  override move(key: string): IMoved | null {
    const map = this._map;
    const cell = map && moveAmongCells(key === 'Enter' ? 'copy' : key, this._at, map.cells, Infinity);
    if (!cell) {
      return null;
    }
    this._at = cell;
    const { row, column } = cell;
    const mark = map.markOf(cell);
    const place = map.place(row, column);
    const value = map.valueName(place);
    this.env.zoom?.reveal(map.xOf(column), row);
    const sentence = this.t('%1, %2: %3', map.columnName(place), map.rowName(row), value);
    if (key === 'Enter') {
      this.clicked(mark);
    }
    return key === 'copy' ? { said: sentence, mark, copy: value } : { said: sentence, mark };
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  private async _compose(
    map: DrawnMap,
    left: number,
    reader: MomentReader,
    signal: AbortSignal
  ): Promise<IContent> {
    const { options, by, t } = this;
    const { groups, cells, isUnfinished: unfinished } = map;
    const bands = options.colors === 'sigma';
    const locked = bands ? null : this.colorRange([cells.values]);
    const [x0, x1] = map.span;
    const [y0, y1] = [-0.5, cells.rows - 0.5];
    const { height, labelled: rowAt } = rowPlaces(cells.rows, ROW);
    // Names take a third of a narrow picture at most.
    const letters = Math.max(LEAST_LETTERS, Math.floor(this.env.width / 3 / LETTER));
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
      const scale = this._scaleOf(map, { dark, range: locked });
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
          rowText: rowAt.map(row => map.rowLabel(row, letters)),
          ...strip.params
        },
        datasets: { pictures: [{ ...picture, x: x0, x2: x1, y: y0, y2: y1 }], legend: strip.rows },
        painted: pictures.painted,
        height
      };
    };
    const scale = this._scaleOf(map, { range: locked });
    this._domain = scale.domain;
    return {
      recipe: recipeIn(this.env.isDark, this._pictures),
      // Only the middle of a scale that has one is another in the dark.
      ...((scale.signed || bands) && { printed: (dark = false) => recipeIn(dark, new Pictures()) }),
      extent: { x: whole, y: [y0, y1] },
      title: titleWords(options, by, groups.step, t),
      caption: [
        ...(this._isOverSteps ? [] : this.nearWords(this._wanted, this._step ?? NaN)),
        ...mapCaption(options, { map, scale, left, locked, by, index: this.index, name: this.source.name }, t)
      ],
      summary: this._summary(map),
      notes: [
        ...(await this.notes(reader, signal)),
        ...(locked || bands
          ? []
          : logNotes([cells.values], options.transform, change => this.choose(change), t))
      ]
    };
  }

  /** Lowest and highest value of the colours; null where they follow the values. */
  protected colorRange(_values: readonly ArrayLike<number>[]): readonly [number, number] | null {
    return lockedRange(this.options.color_range ?? []);
  }

  private _scaleOf({ groups, cells }: DrawnMap, look: IColorLook): ColorScale {
    const { transform, colors } = this.options;
    const low = transform === 'log' ? lowMagnitude([groups.value]) : NaN;
    const extent = extentOf([cells.values]);
    return colors === 'sigma'
      ? new SigmaScale(cells.values, extent, transform, low, look)
      : new ColorScale(extent, transform, low, look);
  }

  /** Ask for what is shown, and as much on either side, where not every step could be brought. */
  private _zoomed(question: ReturnType<MomentPane['question']>): ReturnType<MomentPane['question']> {
    const { zoom } = this.env;
    if (!zoom?.isZoomed || !this._map) {
      return question;
    }
    const { x0, x1 } = zoom.domain;
    const steps = this._axis.stepsIn([x0 - (x1 - x0), x1 + (x1 - x0)]);
    const leftOut = this.steps.length > MOST_POINTS / 4;
    return steps && leftOut ? { ...question, steps } : question;
  }

  override insight(): IMark | null {
    const peak = this._map?.peak;
    return peak && this._map ? this._map.markOf(peak) : null;
  }

  /** Whether its words begin with what departs most: where few of them are seen. */
  protected readonly leadsWithEvent: boolean = false;

  private _summary(map: DrawnMap): string {
    const { peak, groups } = map;
    const { t, options } = this;
    if (peak === null) {
      return t('No value is finite.');
    }
    const largest = t(
      'The largest magnitude, %1, is at %2 in %3.',
      map.valueName(peak, 4),
      map.columnName(peak),
      map.rowName(peak.row)
    );
    if (!this._isOverSteps || groups.step.length > MOST_TOLD) {
      return largest;
    }
    const value = drawnValues(groups, options);
    const starts = startsOf(this.total ?? { ...NOTHING, stepsTotal: 0 });
    const rows = spans(groups).map(([from, to], at) => ({
      name: map.rowName(at),
      step: groups.step.subarray(from, to),
      value: value.subarray(from, to),
      nonFinite: groups.nonFinite.subarray(from, to),
      starts
    }));
    return `${toldWords(capital(axisWords(options, [], t)), rows, t, this.leadsWithEvent)} ${largest}`;
  }

  private get _isOverSteps(): boolean {
    return this.options.columns === 'step';
  }

  private get _rows(): readonly MomentColumn[] {
    return mapRows(this.options);
  }

  private _axis = new StepAxis([]);
  private _step: number | null = null;
  private _wanted: number | null = null;
  private _read: IMomentGroups | null = null;
  private _map: DrawnMap | null = null;
  private _drawn = '';
  private _domain: readonly [number, number] | null = null;
  private _half = 0.5;
  private _at: IGridCell | null = null;
  private readonly _pictures = new Pictures();
}

interface IRead extends IMapGrid {
  /** What came from the run: the same object while that is the same. */
  readonly of: IMomentGroups;
}

const NOTHING = { step: new Float64Array(), samples: new Float64Array() };
