import { flagColor, formatFull, formatInteger, Pictures, type IPlace, type IRecipe } from '../../charts';
import type { HeatmapOptions } from '../../protocol/views.generated';
import type { ITensorQuery, ITensorRow, ITensorShape, SourceChange } from '../../store/source';
import type { IPointed } from '../../store/run-link';
import { ViewModel } from '../shared/view-model';
import type { IMark, IMoved, INote, Loaded } from '../shared/content';
import { colorRangeControl, goControl, stepsControl, transformControl } from '../shared/controls';
import { flagInfo, flagWords } from '../shared/describe';
import { errorWords, unmeasured } from './error-words';
import { firstOfEach, shapeHeatmap, tokenRow, tokensOf, type ILayer, type IShown } from './heatmap-data';
import { heatmapRecipe } from './heatmap-recipe';
import { heatmapCaption, heatmapSummary, heatmapTitle, peakOf, positionWords } from './heatmap-words';
import { own } from '../../protocol/own';
import { rangesText } from '../../protocol/ranges';
import { isOver } from '../../store/is-over';
import { chosenLayers, layerName, layerWords } from '../shared/layers';
import type { ILinkedMarks } from '../shared/links';
import { hold } from '../shared/places';
import { StepShown } from '../shared/pinned-step';
import { lockedRange } from '../shared/scale';
import { rankWords } from '../shared/place-words';
import { readStep } from './read-step';
import { emptyFlag, emptyState, type IState, type IStateActions } from '../shared/states';
import type { Control } from '../shared/control';
import { selectControl } from '../shared/select-control';
import { tensorControls, type TensorOptions } from '../shared/tensor-controls';
import type { ITip } from '../shared/tip';

/** Trace point that carries the texts of positions. */
const TOKENS = 'InputTokens';

/** Steps of the cursor by key: columns, rows, layers. */
const MOVES: Readonly<Record<string, readonly [number, number, number]>> = {
  ArrowLeft: [-1, 0, 0],
  ArrowRight: [1, 0, 0],
  ArrowUp: [0, -1, 0],
  ArrowDown: [0, 1, 0],
  PageUp: [0, 0, -1],
  PageDown: [0, 0, 1],
  Home: [-Infinity, 0, 0],
  End: [Infinity, 0, 0],
  copy: [0, 0, 0]
};

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

const around = (center: number): readonly [number, number] => [center - 0.5, center + 0.5];

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

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'tensors';
  }

  protected override get actions(): IStateActions {
    return { ...this.env.actions, chooseFlag: flag => this.choose({ flag, part: null }) };
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { flag, phase, pass, rank, sample, head, scale, transform } = this.options;
    const known = await this.source.shapeOf(flag);
    this._shape = known;
    const layers = chosenLayers(this.options.layers, known.layers);
    const part = this._part;
    const query: ITensorQuery = {
      flag,
      phase,
      pass,
      rank: rank ?? 'lowest',
      layers,
      ...(part ? { part } : {})
    };
    const all = await this.source.steps(flag, phase, query);
    const [from, to] = this.env.within(null) ?? [-Infinity, Infinity];
    const steps = all.filter(step => step >= from && step <= to);
    this._steps = steps;
    const wanted = this._step.of(this.options.step);
    const read = await readStep(this.source, query, steps, wanted, signal);
    if (read === null) {
      this._shown = null;
      if (layers.length === 0 && known.layers.length > 0) {
        return { state: this._noRow(layers, 0) };
      }
      return { state: await emptyFlag(this.source, flag, phase, this.actions, this.t, pass) };
    }
    const { step, result } = read;
    const [tokens, measured] = await Promise.all([
      this._tokens(step, result.rows[0]?.rank ?? 0, signal),
      this._measured(query, result.rows, step, signal)
    ]);
    const [first, ...others] = firstOfEach(result.rows);
    if (first === undefined) {
      this._shown = null;
      return { state: this._noRow(layers, step) };
    }
    const axes = flagInfo(this.source.hello, flag)?.axes ?? ['position', 'feature'];
    const look = { dark: this.env.isDark, range: lockedRange(this.options.color_range ?? []) };
    const wish = { step, sample, head, scale, transform, axes, tokens, look };
    const shown = shapeHeatmap([first, ...others], wish, this._shown);
    this._shown = shown;
    if (shown.layers.every(({ slice }) => slice.values.length === 0)) {
      return { state: this._noValues() };
    }
    const notes = await this._untraced(layers, query);
    return {
      content: {
        notes,
        ...heatmapRecipe(shown, scale === 'own', this.env.width, this._pictures, this.t),
        // What leaves the page is light.
        ...(look.dark && {
          printed: () =>
            this._printed(shapeHeatmap([first, ...others], { ...wish, look: { range: look.range } }, shown))
        }),
        title: heatmapTitle(shown, this.subject, this.t),
        caption: heatmapCaption(
          shown,
          { ...this.options, step: wanted },
          result,
          {
            rank: rankWords(
              [...new Set([first, ...others].map(row => row.rank))].sort((a, b) => a - b),
              known,
              rank,
              this.source.hello,
              this.t
            ),
            error: errorWords([first, ...others], measured, this.t)
          },
          this.t
        ),
        summary: heatmapSummary(shown, this.t),
        swatch: flagColor(flag, this.source.hello?.flags.map(each => each.name) ?? [])
      }
    };
  }

  override controls(): Control[] {
    const { options, t, source } = this;
    const shown = this._shown;
    const domain = shown?.layers[0]?.scale.domain;
    const toStep = (step: number | null): void => {
      this.leavePin();
      this.choose({ step });
    };
    const pickers = [
      ...this._picker('head', t('Head'), shown?.axes.heads ?? 1),
      ...this._picker('sample', t('Sample'), shown?.axes.samples ?? 1)
    ];
    const choose = (change: Partial<TensorOptions>): void =>
      this.choose({
        ...change,
        ...(change.flag === undefined ? {} : { head: 0 }),
        ...(change.phase === undefined ? {} : { step: null })
      });
    return [
      ...tensorControls(source, options, this._shape, pickers, choose, t),
      stepsControl(this._steps, this._step.of(options.step), source.connection, toStep, t),
      goControl(toStep, t),
      ...(shown && shown.layers.length > 1 ? [this._scaleControl()] : []),
      transformControl(t('Colours'), options.transform, transform => this.choose({ transform }), t),
      ...(domain
        ? [colorRangeControl(options.color_range, domain, range => this.choose({ color_range: range }), t)]
        : [])
    ];
  }

  override probe(place: IPlace): IMark | null {
    const layers = this._shown?.layers ?? [];
    const at = layers.findIndex(each => each.layer === place.frame.facet['layer']);
    const { rows = 1, columns = 1 } = layers[at]?.slice ?? {};
    const [column, row] = [hold(Math.round(place.x), columns), hold(Math.round(place.y), rows)];
    // The keys go on from where the pointer is.
    this._at = { place: at, column, row };
    return { facet: ['layer', layers[at]?.layer], x: around(column), y: around(row) };
  }

  override tipOf(mark: IMark): ITip | null {
    const found = this._cellOf(mark);
    if (found === null) {
      return null;
    }
    const { layer, column, row, value, shown } = found;
    const { axes } = shown;
    return {
      heading: layerName(layer.layer, this.t),
      lines: [
        { name: this.t('value'), value: formatFull(value, true) },
        { name: this.t(axes.x), value: positionWords(shown, column) },
        ...(axes.y ? [{ name: this.t(axes.y), value: formatInteger(row) }] : []),
        { name: this.t('step'), value: formatInteger(shown.step) }
      ]
    };
  }

  override insight(): IMark | null {
    const shown = this._shown;
    const peak = shown && peakOf(shown);
    if (!peak) {
      return null;
    }
    const { layer, column, row } = peak;
    this._at = { place: shown.layers.indexOf(layer), column, row };
    return { facet: ['layer', layer.layer], x: around(column), y: around(row) };
  }

  override move(key: string): IMoved | null {
    const [shown, by] = [this._shown, own(MOVES, key)];
    if (!shown || by === undefined) {
      return null;
    }
    const before = this._at;
    const place = hold((before?.place ?? 0) + by[2], shown.layers.length);
    const layer = shown.layers[place];
    if (layer === undefined) {
      return null;
    }
    const { slice } = layer;
    const column = hold((before?.column ?? 0) + (before ? by[0] : 0), slice.columns);
    const row = hold((before?.row ?? 0) + (before ? by[1] : 0), slice.rows);
    this._at = { place, column, row };
    this.env.zoom?.reveal(column, row);
    const value = formatFull(slice.values[row * slice.columns + column] ?? NaN, true);
    const where = `${this.t(shown.axes.x)} ${positionWords(shown, column)}`;
    const down = shown.axes.y ? `, ${this.t(shown.axes.y)} ${row}` : '';
    const said = this.t('%1, %2%3: %4', layerName(layer.layer, this.t), where, down, value);
    const mark: IMark = { facet: ['layer', layer.layer], x: around(column), y: around(row) };
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  /** The step and the layers that are drawn; null while there is no picture. */
  get shown(): { readonly step: number; readonly layers: readonly { readonly layer: number }[] } | null {
    return this._shown;
  }

  override pointedBy(mark: IMark): IPointed {
    const layer = mark.facet?.[1];
    return { layer: typeof layer === 'number' ? layer : null, step: this._shown?.step ?? null };
  }

  override marksOf({ layer }: IPointed): ILinkedMarks {
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

  override restyled(): void {
    this.env.refresh();
  }

  private _printed(shown: IShown): IRecipe {
    const own = this.options.scale === 'own';
    const { recipe } = heatmapRecipe(shown, own, this.env.width, new Pictures(), this.t);
    return recipe;
  }

  private _picker(id: 'sample' | 'head', label: string, count: number): Control[] {
    const change = (value: number): void => this.choose(id === 'head' ? { head: value } : { sample: value });
    return count < 2
      ? []
      : [{ kind: 'number', id, label, value: this.options[id], least: 0, most: count - 1, change }];
  }

  private _scaleControl(): Control {
    const words = { shared: this.t('shared'), own: this.t('own') };
    return selectControl('scale', this.t('Scale'), this.options.scale, words, scale =>
      this.choose({ scale })
    );
  }

  private _cellOf(
    mark: IMark
  ): { shown: IShown; layer: ILayer; column: number; row: number; value: number } | null {
    const shown = this._shown;
    const layer = shown?.layers.find(each => each.layer === mark.facet?.[1]);
    const [column, row] = [mark.x[0] + 0.5, (mark.y?.[0] ?? 0) + 0.5];
    if (!shown || !layer || column >= layer.slice.columns || row >= layer.slice.rows) {
      return null;
    }
    return {
      shown,
      layer,
      column,
      row,
      value: layer.slice.values[row * layer.slice.columns + column] ?? NaN
    };
  }

  /** Where the newest step is followed: which of the layers it follows are not traced any more, and what is. */
  private async _untraced(layers: readonly number[], query: ITensorQuery): Promise<INote[]> {
    const { flag, phase } = this.options;
    const step = this._step.of(this.options.step);
    const { hello, connection } = this.source;
    if (step !== null || hello === null || isOver(this.source) || connection.kind === 'closed') {
      return [];
    }
    const setting = own(hello.config.flags, flag);
    const traced = setting === undefined ? [] : chosenLayers(setting.layers ?? 'all', this._shape.layers);
    const gone = layers.filter(layer => !traced.includes(layer));
    const ends = gone.length > 0 ? await this.source.steps(flag, phase, { ...query, layers: gone }) : [];
    const last = ends[ends.length - 1];
    if (last === undefined) {
      return [];
    }
    const text = this.t(
      '%1 of %2: not traced any more since step %3.',
      capital(layerWords(gone)),
      this.subject,
      formatInteger(last)
    );
    const others = Object.keys(hello.config.flags);
    const [layer, other] = [traced[0], others.find(name => name !== flag)];
    const action =
      layer !== undefined
        ? {
            label: this.t('Show %1', layerName(layer, this.t)),
            run: () => this.choose({ layers: rangesText([layer]) })
          }
        : other !== undefined
          ? {
              label: this.t('Show %1', flagWords(hello, other, null, this.t)),
              run: () => this.choose({ flag: other, part: null, layers: 'all', head: 0 })
            }
          : { label: this.t('Check again'), run: () => this.actions.retry() };
    return [{ text, action }];
  }

  private _noValues(): IState {
    return emptyState(
      this.t(
        'Only the shape and the counts of %1 were kept. Choose a compressor that keeps values.',
        this.subject
      ),
      this.t('Check again'),
      () => this.actions.retry()
    );
  }

  private _noRow(layers: readonly number[], step: number): IState {
    const first = this._shape.layers[0];
    const sentence =
      layers.length === 0
        ? this.t(
            'Layers %1 are not traced; there are rows of %2.',
            this.options.layers,
            layerWords(this._shape.layers)
          )
        : this.t('%1 has no row of %2 at step %3.', this.subject, layerWords(layers), formatInteger(step));
    const action =
      first === undefined || layers.includes(first)
        ? { label: this.t('Check again'), run: () => this.actions.retry() }
        : {
            label: this.t('Show %1', layerName(first, this.t)),
            run: () => this.choose({ layers: String(first) })
          };
    return { kind: 'empty', sentence, action };
  }

  /** The newest measured rows up to a step, where a drawn one was not measured. */
  private async _measured(
    query: ITensorQuery,
    rows: readonly ITensorRow[],
    step: number,
    signal: AbortSignal
  ): Promise<readonly ITensorRow[]> {
    const key = JSON.stringify(query);
    const inVain = this.source.connection.kind === 'recorded' && key === this._unmeasured.key;
    if (!unmeasured(rows) || (inVain && step <= this._unmeasured.upTo)) {
      return [];
    }
    const found = await this.source.tensors({ ...query, steps: [0, step], measured: true }, signal);
    if (found.rows.length === 0) {
      this._unmeasured = { key, upTo: step };
    }
    return found.rows;
  }

  /** Texts of the positions of the chosen sample at a step; empty when they are not traced. */
  private async _tokens(step: number, rank: number, signal: AbortSignal): Promise<string[]> {
    const { phase, flag, sample } = this.options;
    if (flag === TOKENS || !this.source.hello?.flags.some(each => each.name === TOKENS)) {
      return [];
    }
    const { rows } = await this.source.tensors({ flag: TOKENS, phase, steps: [step, step] }, signal);
    return tokensOf(tokenRow(rows, rank, this.source.hello), sample);
  }

  private _shape: ITensorShape = { parts: [], layers: [] };
  /** What was asked for errors in vain, and up to which step. */
  private _unmeasured = { key: '', upTo: -Infinity };
  private _steps: readonly number[] = [];
  private _shown: IShown | null = null;
  private readonly _pictures = new Pictures();
  private readonly _step = new StepShown(this.env);
  private _at: { place: number; column: number; row: number } | null = null;
}
