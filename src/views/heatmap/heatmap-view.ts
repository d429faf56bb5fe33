import { flagColor, formatFull, formatInteger, Pictures, type IRecipe } from '../../charts';
import type { HeatmapOptions } from '../../protocol/views.generated';
import type { IPointed } from '../../store/run-link';
import type { SourceChange } from '../../store/source';
import type { ITensorShape } from '../../store/tensor-data';
import { CellPicture, type ICellWords } from '../kits/matrix/matrix-picture';
import type { IMark, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import type { IViewDefinition } from '../shared/definition';
import { axisWords, flagInfo, flagWords, rankWords } from '../shared/describe';
import { chosenLayers, layerName } from '../shared/layers';
import type { ILinkedMarks } from '../shared/links';
import { columnOf, positionShown, StepShown } from '../shared/pinned-step';
import { lockedRange, type IGridCell } from '../shared/scale';
import { emptyFlag, type IState, type IStateActions } from '../shared/states';
import { logNotes } from '../shared/robust-range';
import { ViewModel } from '../shared/view-model';
import {
  heatmapControls,
  noPositions,
  noRow,
  noText,
  noTexts,
  noValues,
  untraced,
  type IHeatmapSubject
} from './heatmap-controls';
import { shapeHeatmap, type IShown, type HeatmapQuestion, type IHeatmapRead, valueIn } from './heatmap-data';
import { heatmapRecipe } from './heatmap-recipe';
import {
  errorWords,
  heatmapCaption,
  heatmapSummary,
  heatmapTitle,
  peakOf,
  positionWords
} from './heatmap-words';
import { queryOf, StepRows } from './step-rows';
import { TextSource } from './text-source';

/** What was read, and the step that was asked for; or why there is nothing. */
type IFound = { readonly read: IHeatmapRead; readonly wanted: number | null } | { readonly state: IState };

/** Position × tile of one flag at a step, one picture for each layer. */
export class HeatmapView extends ViewModel<HeatmapOptions> {
  override readonly zooms = { axes: 'xy', least: 4 } as const;

  get subject(): string {
    const { flag, pass } = this.options;
    return flagWords(this.source.hello, flag, this._part, this.t, pass);
  }

  /** The part that is drawn; null where the flag has none. */
  private get _part(): string | null {
    return this.options.part ?? this._shape.parts[0] ?? null;
  }

  override get followsPosition(): boolean {
    return this.options.generation !== null;
  }

  concerns(change: SourceChange): boolean {
    this._texts.note(change);
    const streams = this.options.generation === null ? ['tensors'] : ['generations', 'tensors', 'tokens'];
    return change.kind === 'rows' && streams.includes(change.stream);
  }

  protected override get actions(): IStateActions {
    return { ...this.env.actions, chooseFlag: flag => this.choose({ flag, part: null }) };
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { flag } = this.options;
    this._shape = await this.source.shapeOf(flag);
    const layers = chosenLayers(this.options.layers, this._shape.layers);
    const question = { ...this.options, layers, part: this._part };
    const found = await (this.options.generation === null
      ? this._readStep(question, signal)
      : this._readText(question, this.options.generation, signal));
    if ('state' in found) {
      this._shown = null;
      return found;
    }
    const { read, wanted } = found;
    const { sample, head, step, tokens, text } = read;
    const { scale, transform } = this.options;
    const look = { dark: this.env.isDark, range: lockedRange(this.options.color_range ?? []) };
    const request = { step, sample, head, scale, transform, axes: this._axes, tokens, text, look };
    const shown = shapeHeatmap(read.rows, request, this._shown);
    this._shown = shown;
    this._cells.place(shown);
    if (shown.layers.every(({ slice }) => slice.values.length === 0)) {
      return { state: noValues(this._subject) };
    }
    const values = shown.layers.map(({ slice }) => slice.values);
    const proposed = look.range ? [] : logNotes(values, transform, change => this.choose(change), this.t);
    const without = text
      ? []
      : await untraced(layers, queryOf(question), this._step.of(this.options.step), this._subject);
    const drawnHead = text ? Math.min(this.options.head, text.heads - 1) : shown.head;
    return {
      content: {
        notes: [...without, ...proposed],
        ...heatmapRecipe(shown, scale === 'own', this.env.width, this._pictures, this.t),
        // What leaves the page is light.
        ...(look.dark && {
          printed: () =>
            this._printed(shapeHeatmap(read.rows, { ...request, look: { range: look.range } }, shown))
        }),
        title: heatmapTitle(shown, this.subject, drawnHead, this.t),
        caption: this._caption(read, shown, wanted),
        summary: heatmapSummary(shown, this.t),
        swatch: flagColor(flag, this.source.hello?.flags.map(each => each.name) ?? [])
      }
    };
  }

  override controls(): Control[] {
    const { options, t, source, _shape: shape, _shown: shown, _steps: steps } = this;
    const toStep = (step: number | null): void => {
      this.leavePin();
      this.choose({ step });
    };
    const step = this._step.of(options.step);
    const toolbar = { source, options, shape, shown, steps, step, offered: this._texts.offered };
    return heatmapControls(toolbar, change => this.choose(change), toStep, t);
  }

  protected override get drawn(): HeatmapCells | null {
    return this._shown && this._cells;
  }

  override insight(): IMark | null {
    const shown = this._shown;
    const peak = shown && peakOf(shown);
    return peak && this._cells.show({ ...peak, plot: shown?.layers.indexOf(peak.layer) });
  }

  /** The step and the layers that are drawn; null while there is no picture. */
  get shown(): { readonly step: number; readonly layers: readonly { readonly layer: number }[] } | null {
    return this._shown;
  }

  override pointedBy(mark: IMark): IPointed {
    const layer = mark.facet?.[1];
    const { step = null, text } = { ...this._shown };
    return {
      layer: typeof layer === 'number' ? layer : null,
      step: text ? null : step,
      ...(text && this._isByPosition ? { ...this._text, position: mark.x[0] + 0.5 } : {})
    };
  }

  override pinned(): IMark | null {
    const text = this._text;
    const position = text && this._isByPosition ? positionShown(this.env, null, text) : null;
    return position === null ? null : columnOf(position);
  }

  override marksOf({ layer, generation, sequence, position }: IPointed): ILinkedMarks {
    const text = this._text;
    if (typeof position === 'number' && generation === text?.generation && sequence === text?.sequence) {
      return { marks: text && this._isByPosition ? [columnOf(position)] : [] };
    }
    const slice = this._shown?.layers.find(each => each.layer === layer)?.slice;
    return {
      marks: slice
        ? [{ facet: ['layer', layer], x: [-0.5, slice.columns - 0.5], y: [-0.5, slice.rows - 0.5] }]
        : []
    };
  }

  /** Another step is chosen by hand: show it, whichever is pinned. */
  leavePin(): void {
    this._step.leave();
    this.env.refresh(false);
  }

  private _printed(shown: IShown): IRecipe {
    const own = this.options.scale === 'own';
    const { recipe } = heatmapRecipe(shown, own, this.env.width, new Pictures(), this.t);
    return recipe;
  }

  private async _readStep(question: HeatmapQuestion, signal: AbortSignal): Promise<IFound> {
    const { source, t } = this;
    const { flag, phase, pass, layers } = question;
    const [all] = await Promise.all([source.steps(flag, phase, queryOf(question)), this._offer()]);
    const [from, to] = this.env.within(null) ?? [-Infinity, Infinity];
    this._steps = all.filter(step => step >= from && step <= to);
    const wanted = this._step.of(this.options.step);
    const read = await this._stepRows.read(question, this._steps, wanted, signal);
    if (read !== null && typeof read === 'object') {
      return { read, wanted };
    }
    if (read !== null || (layers.length === 0 && this._shape.layers.length > 0)) {
      return { state: noRow(layers, read ?? 0, this._subject) };
    }
    return { state: await emptyFlag(source, flag, phase, this.actions, t, pass) };
  }

  private async _readText(
    question: HeatmapQuestion,
    requested: number,
    signal: AbortSignal
  ): Promise<IFound> {
    const texts = await this._texts.offer();
    if (texts === null) {
      return { state: noTexts(this._subject) };
    }
    if (!this._axes.some(axis => axis === 'position' || axis === 'query')) {
      return { state: noPositions(this._subject) };
    }
    const { text, read } = await texts.read(question, requested, this._axes, signal);
    return read ? { read, wanted: null } : { state: noText(text, this._subject) };
  }

  /** Which generations there are; a picture of a step is drawn without an answer too. */
  private _offer(): Promise<unknown> {
    return this._texts.offer().catch(() => undefined);
  }

  private _caption(read: IHeatmapRead, shown: IShown, wanted: number | null): string[] {
    const ranks = [...new Set(read.rows.map(row => row.rank))].sort((a, b) => a - b);
    return heatmapCaption(
      shown,
      { ...this.options, step: wanted },
      read.result,
      {
        rank: rankWords(ranks, this._shape, this.options.rank, this.source.hello, this.t),
        error: errorWords(read.rows, read.measured, this.t)
      },
      this.t
    );
  }

  /** The text that is drawn; null where a step is. */
  private get _text(): { readonly generation: number; readonly sequence: number } | null {
    const { generation, sequence } = { ...this._shown?.text };
    return generation === undefined || sequence === undefined ? null : { generation, sequence };
  }

  /** Whether a column is a position. */
  private get _isByPosition(): boolean {
    return this._shown?.axes.x === 'position';
  }

  private get _axes(): readonly string[] {
    return flagInfo(this.source.hello, this.options.flag)?.axes ?? ['position', 'feature'];
  }

  private get _subject(): IHeatmapSubject {
    const { source, subject, options, actions, t, _shape: shape } = this;
    return { source, subject, options, actions, t, shape, choose: change => this.choose(change) };
  }

  private _shape: ITensorShape = { parts: [], layers: [] };
  private _steps: readonly number[] = [];
  private _shown: IShown | null = null;
  private readonly _pictures = new Pictures();
  private readonly _step = new StepShown(this.env);
  private readonly _stepRows = new StepRows(this.source);
  private readonly _texts = new TextSource(this.source);
  private readonly _cells = new HeatmapCells(this.t, this.env);
}

/** The cells of a heatmap: one plot a layer. */
class HeatmapCells extends CellPicture {
  protected override readonly turns = true;

  place(shown: IShown): void {
    this._shown = shown;
    this.plots = shown.layers.map(({ layer, slice: { columns, rows } }) => ({
      facet: ['layer', layer],
      x: [-0.5, columns - 0.5],
      xs: Array.from({ length: columns }, (_, column) => column),
      half: 0.5,
      ys: Array.from({ length: rows }, (_, row) => row),
      axis: null
    }));
  }

  protected words({ column, row, plot = 0 }: IGridCell): ICellWords {
    const { t, _shown: shown } = this;
    const of = shown?.layers[plot];
    if (!shown || !of) {
      return { tip: null, said: '', value: '' };
    }
    const found = valueIn(of.slice, row * of.slice.columns + column);
    const value = found === null ? t('nothing') : formatFull(found, true);
    const { axes, step, text } = shown;
    const [heading, x, y] = [layerName(of.layer, t), axisWords(axes.x, t), axes.y && axisWords(axes.y, t)];
    const where = positionWords(shown, column);
    return {
      tip: {
        heading,
        lines: [
          { name: t('value'), value },
          { name: x, value: where },
          ...(y ? [{ name: y, value: formatInteger(row) }] : []),
          ...(text ? [] : [{ name: t('step'), value: formatInteger(step) }])
        ]
      },
      said: t('%1, %2%3: %4', heading, `${x} ${where}`, y ? `, ${y} ${row}` : '', value),
      value
    };
  }

  private _shown: IShown | null = null;
}

export const view: IViewDefinition<HeatmapOptions> = {
  create: (source, env) => new HeatmapView(source, env)
};
