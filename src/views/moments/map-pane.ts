import {
  ColorScale,
  formatInteger,
  lowMagnitude,
  Pictures,
  type IColorLook,
  type IPlace,
  type IRecipe
} from '../../charts';
import type { IMomentGroups, MomentColumn } from '../../store/moment-source';
import type { IPointed } from '../../store/run-link';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { colorRangeControl, goControl, lockedWords } from '../shared/controls';
import { axisTexts } from '../shared/lines/axis-texts';
import { WHOLE_NUMBERS } from '../shared/lines/line-recipe';
import type { ILinkedMarks, IStepAxis } from '../shared/links';
import { besideWords, pinnedColumns } from '../shared/pinned-step';
import { colorStrip, extentOf, lockedRange } from '../shared/scale';
import type { ITip } from '../shared/tip';
import { omittedWords, optionWords, trustWords } from './captions';
import { groupId, linesOf } from './line';
import type { ILine } from '../shared/lines/line';
import { valueWords } from '../shared/lines/line-tips';
import { StepAxis } from '../shared/lines/step-axis';
import { hold, moveOf } from '../shared/places';
import { titleWords } from './line-words';
import { cellsOf, type IMapCells } from './map-cells';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { shortName } from '../shared/short-name';
import { axisWords, keyWords } from './words';

/** Most steps that one group brings; of more the extremes of each stretch. */
const MOST_POINTS = 4096;
/** Most item types that have a row. */
const MOST_ITEMS = 200;
/** Pixels of a row, and of the whole. */
const ROW = { height: 15, least: 120, most: 560 };
/** Rows this low have no room for a label each. */
const LABEL_PIXELS = 12;
const MOST_LETTERS = 30;

/** Layers, or item types, over steps or samples, as one picture. */
export class MapPane extends MomentPane {
  override pointedBy(mark: IMark): IPointed {
    const layer = mark.y === null ? null : this._groups?.keys[Math.round((mark.y[0] + mark.y[1]) / 2)]?.[0];
    return {
      step: this._axis.stepNear((mark.x[0] + mark.x[1]) / 2),
      layer: this.by[0] === 'layer' && typeof layer === 'number' ? layer : null
    };
  }

  override marksOf({ layer, step }: IPointed): ILinkedMarks {
    const x = step === null ? null : this._axis.xOf(step);
    const row = layer === null || this.by[0] !== 'layer' ? -1 : this._rowOf(layer);
    const [cells] = [this._cells];
    return {
      marks: [
        ...(x === null ? [] : [{ facet: null, x: [x, x] as const, y: null }]),
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

  override stepAxis(): IStepAxis {
    return {
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
      goControl(step => this.env.goTo(this._goTo(step)), this.t),
      ...(this._domain ? [colorRangeControl(this.options.color_range, this._domain, choose, this.t)] : [])
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
    return [this.options.kind === 'layer_map' ? 'layer' : 'item_type'];
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, by, t } = this;
    const placed = await this.axisOf(this.total ?? NOTHING, signal);
    if (placed === null) {
      return this.unknownPlaces();
    }
    const { axis } = placed;
    this._axis = axis;
    const question = this._zoomed(this.question(by, MOST_POINTS));
    const items = Math.max(options.series, MOST_ITEMS);
    const groups = await reader.groups(
      options.kind === 'layer_map' ? question : { ...question, series: items },
      signal
    );
    if (groups.step.length === 0) {
      return { state: this.nothing() };
    }
    const same = groups === this._groups && this._drawn === JSON.stringify(options);
    if (!same || this._cells === null) {
      this._drawn = JSON.stringify(options);
      this._groups = groups;
      this._lines = linesOf(groups, {
        options,
        by,
        run: 0,
        name: key => keyWords(key, by, t),
        label: key => keyWords(key, by, t)
      });
      const xs = groups.step.map(step => axis.xOf(step));
      const places = [...new Set(xs)].sort((a, b) => a - b);
      this._cells = cellsOf(groups, row => xs[row] ?? 0, places, options.statistic !== 'nonfinite');
    }
    return { content: await this._compose(groups, this._cells, reader, signal) };
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
    const name = keyWords(groups.keys[row] ?? [], this.by, this.t);
    const at = cells.source[row * cells.columns + column] ?? -1;
    if (at < 0) {
      return { heading: name, lines: [{ name: this.t('no data'), value: '' }] };
    }
    const step = this.t('step %1', formatInteger(groups.step[at] ?? 0));
    const { pinned } = this.env;
    if (pinned === null || pinned === groups.step[at]) {
      return { heading: name, lines: [{ name: step, value: this._valueAt(at) }] };
    }
    const then = groups.step.findIndex((each, place) => each === pinned && groups.group[place] === row);
    const beside = besideWords(groups.value[at] ?? NaN, groups.value[then] ?? NaN, this.t);
    return {
      heading: name,
      columns: pinnedColumns(pinned, this.t),
      lines: [{ name: step, value: this._valueAt(at), beside }]
    };
  }

  override move(key: string): IMoved | null {
    const [by, cells, groups] = [moveOf(key), this._cells, this._groups];
    if (by === undefined || !cells || !groups) {
      return null;
    }
    const before = this._at;
    const row = hold((before?.row ?? 0) + (before ? by[1] : 0), cells.rows);
    const column = hold((before?.column ?? cells.columns - 1) + (before ? by[0] : 0), cells.columns);
    this._at = { row, column };
    const mark = this._markOf(row, column);
    const name = keyWords(groups.keys[row] ?? [], this.by, this.t);
    const at = cells.source[row * cells.columns + column] ?? -1;
    const value = at < 0 ? this.t('no data') : this._valueAt(at);
    const x = cells.x + (column + 0.5) * cells.width;
    this.env.zoom?.reveal(x, row);
    const step = at < 0 ? this._axis.stepNear(x) : (groups.step[at] ?? 0);
    const said = this.t('step %1, %2: %3', formatInteger(step), name, value);
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  private async _compose(
    groups: IMomentGroups,
    cells: IMapCells,
    reader: MomentReader,
    signal: AbortSignal
  ): Promise<IContent> {
    const { options, by, t } = this;
    const locked = lockedRange(options.color_range ?? []);
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
    const whole: [number, number] = [(xs[0] ?? 0) - this._half, (xs[xs.length - 1] ?? 0) + this._half];
    const recipeIn = (dark: boolean, pictures: Pictures): IRecipe => {
      const scale = this._scaleOf(cells, { dark, range: locked });
      const strip = colorStrip(scale, unfinished, t);
      const picture = pictures.draw(0, cells, scale);
      return {
        template: 'moment-map',
        texts: {
          xLabel: WHOLE_NUMBERS,
          ...axisTexts(options.align, options.x, this.env, t),
          yTitle: by[0] === 'layer' ? t('layer') : t('item type'),
          legendTitle: axisWords(options, [], t)
        },
        params: {
          x0,
          x1,
          y0,
          y1,
          rowAt,
          rowText: rowAt.map(row => labelOf(groups.keys[row]?.[0] ?? null, t('none'))),
          ...strip.params
        },
        datasets: { pictures: [{ ...picture, x: x0, x2: x1, y: y0, y2: y1 }], legend: strip.rows },
        painted: pictures.painted,
        height
      };
    };
    const { domain, signed } = this._scaleOf(cells, { range: locked });
    this._domain = domain;
    return {
      recipe: recipeIn(this.env.isDark, this._pictures),
      // Only the middle of a scale of both signs is another in the dark.
      ...(signed && { printed: (dark = false) => recipeIn(dark, new Pictures()) }),
      extent: { x: whole, y: [y0, y1] },
      title: titleWords(options, by, groups.step, t),
      caption: [
        ...(cells.merged
          ? [
              t(
                'A column stands for several steps: the one that is not finite or farthest from the middle of its row is drawn.'
              )
            ]
          : []),
        ...omittedWords(groups, t('item types'), t),
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
    const low = transform === 'log' ? lowMagnitude(this._lines.map(line => line.value)) : NaN;
    return new ColorScale(extentOf([cells.values]), transform, low, look);
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
    const x = this._axis.xOf(groups.step[best] ?? 0);
    return this._markOf(groups.group[best] ?? 0, Math.floor((x - cells.x) / cells.width));
  }

  private _summary(groups: IMomentGroups, cells: IMapCells): string {
    const best = peakOf(groups);
    const range = extentOf([cells.values]);
    if (best < 0 || range === null) {
      return this.t('No value is finite.');
    }
    return this.t(
      'The largest magnitude, %1, is at step %2 in %3.',
      this._valueAt(best),
      formatInteger(groups.step[best] ?? 0),
      keyWords(groups.keys[groups.group[best] ?? 0] ?? [], this.by, this.t)
    );
  }

  private _valueAt(row: number): string {
    const group = this._groups?.group[row] ?? 0;
    const line = this._lines.find(each => each.key === groupId(this._groups?.keys[group] ?? []));
    const at = line ? line.step.indexOf(this._groups?.step[row] ?? NaN) : -1;
    return line && at >= 0 ? valueWords(line, at, this.t) : '';
  }

  private _markOf(row: number, column: number): IMark {
    const { x = 0, width = 1 } = this._cells ?? {};
    return { facet: null, x: [x + column * width, x + (column + 1) * width], y: [row - 0.5, row + 0.5] };
  }

  private _rowOf(layer: number): number {
    return this._groups?.keys.findIndex(([key]) => key === layer) ?? -1;
  }

  private _axis = new StepAxis([]);
  private _groups: IMomentGroups | null = null;
  private _lines: readonly ILine[] = [];
  private _cells: IMapCells | null = null;
  private _drawn = '';
  private _domain: readonly [number, number] | null = null;
  private _half = 0.5;
  private _at: { row: number; column: number } | null = null;
  private readonly _pictures = new Pictures();
}

const NOTHING = { step: new Float64Array(), samples: new Float64Array() };

function labelOf(value: string | number | null, none: string): string {
  return value === null ? none : shortName(String(value), MOST_LETTERS);
}

/** Place of the value of largest magnitude; -1 where none is finite. */
function peakOf({ value }: IMomentGroups): number {
  return value.reduce(
    (best, each, at) =>
      Number.isFinite(each) && (best < 0 || Math.abs(each) > Math.abs(value[best] ?? 0)) ? at : best,
    -1
  );
}
