import { ColorScale, lowMagnitude, SigmaScale, type IColorLook } from '../../charts';
import type { IMomentGroups, MomentColumn } from '../../store/row-moments';
import type { IPointed } from '../../store/run-link';
import type { IContent, IMark, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { colorRangeControl, goControl, lockedWords } from '../shared/controls';
import { WHOLE_NUMBERS } from '../kits/lines/line-recipe';
import { axisTexts, StepAxis } from '../kits/lines/step-axis';
import { mergedWords } from '../kits/matrix/over-steps';
import type { ILinkedMarks } from '../shared/links';
import { extentOf, lockedRange } from '../shared/scale';
import { emptyState, type IState } from '../shared/states';
import { logNotes } from '../shared/robust-range';
import { gridAcross, type IMapGrid } from './across';
import {
  bandWords,
  drawnSteps,
  leftWords,
  omittedWords,
  optionWords,
  trustWords,
  whereWords
} from './captions';
import { DrawnMap, type IMapRead } from './drawn-map';
import { drawnValues, spans, startsOf } from './line';
import { cellsOf, cellsChosen, mapGrouping, mapRows, MOST_POINTS, toggled } from './map-cells';
import { cellControls } from './moment-controls';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { axisWords, byWords, columnWords, titleWords, toldWords } from './words';
import { capital } from '../shared/describe';

/** Most rows; layers have one each. */
const MOST_ROWS = 500;
/** Cells of a map up to which it is said what its rows did. */
const MOST_TOLD = 200_000;
/** Most cells whose lines are drawn, as the options' schema says. */
const MOST_CHOSEN = 20;

/** Groups of tensors over steps or samples, or at one step over ranks or layers, as one picture. */
export class MapPane extends MomentPane {
  override pointedBy(mark: IMark): IPointed {
    const { layer, step } = super.pointedBy(mark);
    return {
      step: this._isOverSteps ? step : this._step,
      layer: this.options.columns === 'layer' ? Math.round((mark.x[0] + mark.x[1]) / 2) : layer
    };
  }

  override marksOf(at: IPointed): ILinkedMarks {
    const { layer } = at;
    const x = layer === null || this.options.columns !== 'layer' ? [] : [layer];
    const { marks } = super.marksOf(at);
    return { marks: [...x.map(each => ({ facet: null, x: [each, each] as const, y: null })), ...marks] };
  }

  override controls(): Control[] {
    return [
      ...(this._isOverSteps
        ? [goControl(step => this.env.goTo(this._map.goTo(step)), this.t)]
        : this.stepControls()),
      ...cellControls(this.options, options => this.choose(options), this.t),
      ...colorRangeControl(
        this.options.color_range,
        this.options.colors === 'continuous' ? this._map.domain : null,
        options => this.choose(options),
        () => (this._map.read ? [this._map.read.cells.values] : []),
        this.t
      )
    ];
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
    if (this._from !== grid.of || this._read === null || this._key !== drawn) {
      [this._from, this._key] = [grid.of, drawn];
      const places = [...new Set(xs)].sort((a, b) => a - b);
      const isThin = groups.stepsTotal > drawnSteps(groups);
      const cells = cellsOf(groups, xs, places, {
        hatch: options.statistic !== 'nonfinite',
        bridge: this._isOverSteps && isThin
      });
      const { columns } = options;
      this._read = { groups, xs, cells, rows: mapRows(options), columns, axis: this._axis };
    }
    return { content: await this._compose(this._read, grid.left, reader, signal) };
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

  /** A cell's line is drawn below, or not any more. */
  override clicked(mark: IMark): void {
    const place = this._map.placeOf(mark);
    const cell = place && this._map.cellNamed(place);
    if (cell) {
      this.choose({ cells: toggled(this.options, cell, MOST_CHOSEN) });
    }
  }

  override pinned(): IMark | null {
    const last = cellsChosen(this.options).at(-1);
    return last ? this._map.markOfCell(last) : null;
  }

  protected override get drawn(): DrawnMap {
    return this._map;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  private async _compose(
    read: IMapRead,
    left: number,
    reader: MomentReader,
    signal: AbortSignal
  ): Promise<IContent> {
    const { options, by, t, _map: map } = this;
    const { groups, cells } = read;
    const bands = options.colors === 'sigma';
    const locked = bands ? null : this.colorRange([cells.values]);
    this._half = this.env.zoom?.isZoomed ? this._half : cells.width / 2;
    const [first, last] = this.env.within(options.steps) ?? [-Infinity, Infinity];
    const xs = Array.from(
      this.steps.filter(step => step >= first && step <= last),
      step => this._axis.xOf(step)
    );
    const picture = map.draw(
      read,
      {
        scaleOf: dark => this._scaleOf(read, { dark, range: locked }),
        texts: {
          xLabel: WHOLE_NUMBERS,
          ...(this._isOverSteps
            ? axisTexts(options.align, options.x, this.env, t)
            : { xTitle: columnWords(options.columns, t) }),
          yTitle: byWords(mapRows(options), t),
          legendTitle: axisWords(options, [], t)
        },
        ...(this._isOverSteps && {
          whole: [(xs[0] ?? 0) - this._half, (xs[xs.length - 1] ?? 0) + this._half]
        }),
        width: this.env.width
      },
      this.env.isDark
    );
    return {
      ...picture,
      title: titleWords(options, by, groups.step, t),
      caption: [
        ...(this._isOverSteps ? [] : this.nearWords(this._wanted, this._step ?? NaN)),
        ...whereWords(options, t),
        ...bandWords(this._scaleOf(read, { range: locked }), t),
        ...leftWords(left, options.columns, t),
        ...mergedWords(cells.merged, t),
        ...omittedWords(groups, mapRows(options).join() === 'item_type' ? t('item types') : t('rows'), t),
        ...(options.runs.length > 0
          ? [t('This map shows %1 only; choose lines, or layers at a step, to compare.', this.source.name)]
          : []),
        ...optionWords(options, this.index, t),
        ...lockedWords(locked, [cells.values], t),
        ...map.unfinishedWords,
        ...trustWords(groups, { ...options, by: [...by] }, t)
      ],
      summary: this._summary(read),
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

  private _scaleOf({ groups, cells }: IMapRead, look: IColorLook): ColorScale {
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
    if (!zoom?.isZoomed || !this._read) {
      return question;
    }
    const { x0, x1 } = zoom.domain;
    const steps = this._axis.stepsIn([x0 - (x1 - x0), x1 + (x1 - x0)]);
    const leftOut = this.steps.length > MOST_POINTS / 4;
    return steps && leftOut ? { ...question, steps } : question;
  }

  override insight(): IMark | null {
    const { peak } = this._map;
    return peak && this._map.show(peak);
  }

  /** Whether its words begin with what departs most: where few of them are seen. */
  protected readonly leadsWithEvent: boolean = false;

  private _summary({ groups }: IMapRead): string {
    const { t, options, _map: map } = this;
    const { peak } = map;
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

  private readonly _map: DrawnMap = new DrawnMap(this.t, this.env, mark => this.clicked(mark));
  private _axis = new StepAxis([]);
  private _step: number | null = null;
  private _wanted: number | null = null;
  /** What came from the run, and with which options it was put into cells. */
  private _from: IMomentGroups | null = null;
  private _key = '';
  private _read: IMapRead | null = null;
  private _half = 0.5;
}

interface IRead extends IMapGrid {
  /** What came from the run: the same object while that is the same. */
  readonly of: IMomentGroups;
}

const NOTHING = { step: new Float64Array(), samples: new Float64Array() };
