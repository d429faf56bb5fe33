import { byLayer, layoutOf, trendOf, type ILayerTrend, type ISelection } from '../../aggregate';
import { COLORS, flagColor, formatFull, formatInteger, type IPlace } from '../../charts';
import type { TrendOptions } from '../../protocol/views.generated';
import type { IPointed } from '../../store/run-link';
import type { ITensorResult, ITensorRow, ITensorShape, SourceChange } from '../../store/source';
import { ViewModel } from '../shared/view-model';
import type { IContent, IMark, IMoved, Loaded } from '../shared/content';
import { changeWords } from '../shared/change-words';
import { transformControl } from '../shared/controls';
import { flagInfo, flagWords, omissionWords, thinnedWords } from '../shared/describe';
import { LayerLines } from './layer-lines';
import { inRanges } from '../../protocol/ranges';
import { layerWords } from '../shared/layers';
import { hold, moveOf, placeNear } from '../shared/places';
import { rangeOf, type ILinkedMarks, type IStepAxis } from '../shared/links';
import { rankWords } from '../shared/place-words';
import { emptyFlag, emptyState, type IState, type IStateActions } from '../shared/states';
import type { Control } from '../shared/control';
import { selectControl } from '../shared/select-control';
import { tensorControls } from '../shared/tensor-controls';
import type { ITip } from '../shared/tip';
import { selectionControls, statisticControl } from './trend-controls';
import { trendHeatmap, trendLines } from './trend-recipe';
import { intervalWords, selectionWords, statisticWords } from './trend-words';

/** A line this near to the pointer is the one that is pointed at, pixels. */
const NEAR_PIXELS = 12;
/** Most lines that the tooltip lists. */
const MOST_LINES = 12;

/** A statistic of one flag per layer over steps, as lines or as layer × step. */
export class TrendView extends ViewModel<TrendOptions> {
  get subject(): string {
    const { part, statistic } = this.options;
    return this.t('%1, %2 by step', this._flag(part ?? null), statisticWords(statistic, this.t));
  }

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && change.stream === 'tensors';
  }

  protected override get actions(): IStateActions {
    return { ...this.env.actions, chooseFlag: flag => this.choose({ flag, part: null }) };
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { flag, phase, pass, rank, statistic } = this.options;
    const steps = this.env.within(this.options.steps);
    const known = await this.source.shapeOf(flag);
    this._shape = known;
    const layers = inRanges(this.options.layers, known.layers);
    if (layers.length === 0 && known.layers.length > 0) {
      return { state: this._noLayer() };
    }
    const part = this.options.part ?? known.parts[0];
    const result = await this.source.tensors(
      {
        flag,
        phase,
        pass,
        rank: rank ?? 'lowest',
        layers,
        reduced: true,
        ...(part ? { part } : {}),
        ...(steps ? { steps } : {})
      },
      signal
    );
    const beyond = this._beyond(result.rows[result.rows.length - 1]);
    if (beyond) {
      return { state: beyond };
    }
    const columns = await trendOf(result.rows, statistic, this._selection);
    signal.throwIfAborted();
    this._newest = result.rows[result.rows.length - 1];
    this._units = columns.units?.[columns.units.length - 1] ?? 0;
    this.series = byLayer(columns);
    this.steps = [...new Set(this.series.flatMap(each => each.steps))].sort((a, b) => a - b);
    const traced = this.steps.length === 0 && steps ? await this.source.steps(flag, phase, { pass }) : [];
    if (steps && traced.length > 0) {
      return { state: this._noStep(steps, traced) };
    }
    if (this.steps.length === 0) {
      return { state: await emptyFlag(this.source, flag, phase, this.actions, this.t, pass) };
    }
    return { content: this._compose(part ?? null, result) };
  }

  override controls(): Control[] {
    const { options, t } = this;
    const statistics = statisticControl(options.statistic, statistic => this.choose({ statistic }), t);
    return [
      ...tensorControls(this.source, options, this._shape, [statistics], change => this.choose(change), t),
      ...selectionControls(
        options,
        this._newest && layoutOf(this._newest, this._selection.axes),
        change => this.choose(change),
        t
      ),
      selectControl(
        'kind',
        t('Draw'),
        options.kind,
        { lines: t('lines'), heatmap: t('layer × step') },
        kind => this.choose({ kind })
      ),
      transformControl(t('Scale'), options.transform, transform => this.choose({ transform }), t)
    ];
  }

  override probe(place: IPlace): IMark | null {
    const step = this.steps[placeNear(this.steps, place.x)];
    if (step === undefined) {
      return null;
    }
    this._near = this._lines?.nearest(step, place.y, NEAR_PIXELS / place.frame.height) ?? null;
    return this.markOf(step, this.options.kind === 'heatmap' ? Math.round(place.y) : null);
  }

  override tipOf(mark: IMark): ITip | null {
    const step = (mark.x[0] + mark.x[1]) / 2;
    const layer = mark.y === null ? null : mark.y[0] + 0.5;
    const ramp = this._ramp();
    const found = this.series
      .filter(each => layer === null || each.layer === layer)
      .map(each => ({ layer: each.layer, at: each.steps.indexOf(step), each }))
      .filter(({ at }) => at >= 0);
    if (found.length === 0) {
      return null;
    }
    const lines = found.slice(0, MOST_LINES).map(({ layer: number, at, each }) => {
      const nonFinite = each.nonFinite[at] ?? 0;
      const extra = nonFinite > 0 ? this.t(' (%1 not finite)', formatInteger(nonFinite)) : '';
      return {
        name: this.t('layer %1', number),
        value: formatFull(Number((each.values[at] ?? NaN).toPrecision(9))) + extra,
        ...(layer === null ? { color: ramp(number) } : {})
      };
    });
    if (found.length > MOST_LINES) {
      lines.push({ name: this.t('%1 more layers', found.length - MOST_LINES), value: '' });
    }
    return { heading: this.t('step %1', formatInteger(step)), lines };
  }

  override move(key: string): IMoved | null {
    const by = moveOf(key);
    if (by === undefined || this.steps.length === 0) {
      return null;
    }
    const before = this.at;
    const step = hold((before?.step ?? this.steps.length - 1) + (before ? by[0] : 0), this.steps.length);
    const layer = hold((before?.layer ?? 0) + (before ? by[1] : 0), this.series.length);
    this.at = { step, layer };
    this._near = this.series[layer]?.layer ?? null;
    const [series, at] = [this.series[layer], this.steps[step] ?? 0];
    const place = series?.steps.indexOf(at) ?? -1;
    const value =
      place < 0 ? this.t('no value') : formatFull(Number((series?.values[place] ?? NaN).toPrecision(9)));
    const mark = this.markOf(at, this.options.kind === 'heatmap' ? (series?.layer ?? 0) : null);
    const name = statisticWords(this.options.statistic, this.t);
    const said = this.t('step %1, layer %2: %3 %4', formatInteger(at), series?.layer ?? '', name, value);
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  override pointedBy(mark: IMark): IPointed {
    return { step: (mark.x[0] + mark.x[1]) / 2, layer: mark.y === null ? this._near : mark.y[0] + 0.5 };
  }

  override marksOf({ layer, step }: IPointed): ILinkedMarks {
    const [first = 0, last = 0] = [this.steps[0], this.steps[this.steps.length - 1]];
    const rule: IMark[] = step === null ? [] : [{ facet: null, x: [step, step], y: null }];
    if (layer === null || !this.series.some(each => each.layer === layer)) {
      return { marks: rule };
    }
    if (this._lines) {
      return { marks: rule, traces: this._lines.trace(layer, this._ramp()(layer)) };
    }
    const half = this._spacing / 2;
    const row: IMark = { facet: null, x: [first - half, last + half], y: [layer - 0.5, layer + 0.5] };
    return { marks: [...rule, row] };
  }

  override stepAxis(): IStepAxis {
    const half = this._spacing / 2;
    return {
      stepsIn: ([from, to]) => rangeOf(this.steps.filter(step => step >= from && step <= to)),
      spanOf: ([first, last]) => [first - half, last + half]
    };
  }

  /** What to say where none of the chosen positions is there. */
  private _beyond(row: ITensorRow | undefined): IState | null {
    const layout = row && layoutOf(row, this._selection.axes);
    const all = Array.from({ length: layout?.length ?? 0 }, (_, at) => at);
    if (!layout?.hasPositions || inRanges(this.options.positions, all).length > 0) {
      return null;
    }
    return emptyState(
      this.t('There is no position %1; they go from 0 to %2.', this.options.positions, layout.length - 1),
      this.t('Take all positions'),
      () => this.choose({ positions: 'all' })
    );
  }

  private _noStep([first, last]: readonly [number, number], traced: readonly number[]): IState {
    return emptyState(
      this.t(
        'Nothing was traced of steps %1 to %2: there are rows at steps %3 to %4.',
        formatInteger(first),
        formatInteger(last),
        formatInteger(traced[0] ?? 0),
        formatInteger(traced[traced.length - 1] ?? 0)
      ),
      this.t('Check again'),
      () => this.actions.retry()
    );
  }

  private _noLayer(): IState {
    const known = layerWords(this._shape.layers);
    return emptyState(
      this.t('Layers %1 are not traced; there are rows of %2.', this.options.layers, known),
      this.t('Show all layers'),
      () => this.choose({ layers: 'all' })
    );
  }

  protected markOf(step: number, layer: number | null): IMark {
    const half = layer === null ? 0 : this._spacing / 2;
    return {
      facet: null,
      x: [step - half, step + half],
      y: layer === null ? null : [layer - 0.5, layer + 0.5]
    };
  }

  /** Say what is not here any more. */
  protected keptWords(result: ITensorResult): string[] {
    return [...thinnedWords(result, this.t), ...omissionWords(result, this.t)];
  }

  private get _selection(): ISelection {
    const { flag, positions, vector, interval } = this.options;
    return { positions, vector, interval, axes: flagInfo(this.source.hello, flag)?.axes ?? [] };
  }

  private _compose(part: string | null, result: ITensorResult): IContent {
    const { t, options } = this;
    const statistic = statisticWords(options.statistic, t);
    const layers = this.series.map(each => each.layer);
    const [first = 0, last = 0] = [this.steps[0], this.steps[this.steps.length - 1]];
    const nonFinite = this.series.reduce((sum, each) => sum + each.nonFinite.reduce((a, b) => a + b, 0), 0);
    const { kept, evictedRows } = result;
    const wish = {
      series: this.series,
      steps: this.steps,
      transform: options.transform,
      statistic,
      filledTo: evictedRows > 0 ? (kept?.thinnedTo ?? null) : null
    };
    const picture = options.kind === 'lines' ? trendLines(wish, t) : trendHeatmap(wish, t);
    this._spacing = picture.spacing;
    this._lines =
      options.kind === 'lines'
        ? new LayerLines(this.series, [...picture.extent.y], picture.recipe.texts['yScale'] ?? 'linear')
        : null;
    const caption = [
      options.statistic === 'nonfinite'
        ? t('Counts the traced values of each layer and step that are not finite.')
        : t('%1 over the finite traced values of each layer and step.', capital(statistic)),
      t('Compressor: %1.', [...new Set(result.rows.map(row => row.compressor))].join(t(', then '))),
      ...selectionWords(this._newest, this._selection, t),
      ...intervalWords(options, this._units, t),
      ...rankWords(result.rows, this._shape, options.rank, this.source.hello, t),
      ...picture.caption
    ];
    if (nonFinite > 0) {
      caption.push(
        options.kind === 'lines'
          ? t('Values that were not finite: %1; marks along the top show where.', formatInteger(nonFinite))
          : t('Values that were not finite: %1.', formatInteger(nonFinite))
      );
    }
    const words = changeWords(capital(statistic), this.series, t);
    return {
      recipe: picture.recipe,
      extent: picture.extent,
      title: t(
        '%1, %2 of %3, steps %4 to %5',
        this._flag(part),
        statistic,
        layerWords(layers),
        formatInteger(first),
        formatInteger(last)
      ),
      caption: [...caption, ...this.keptWords(result)],
      summary:
        nonFinite > 0 ? `${words} ${t('Values that were not finite: %1.', formatInteger(nonFinite))}` : words,
      swatch: flagColor(options.flag, this.source.hello?.flags.map(each => each.name) ?? [])
    };
  }

  private _flag(part: string | null): string {
    const { flag, pass } = this.options;
    return flagWords(this.source.hello, flag, part, this.t, pass);
  }

  /** Return the colour of a layer's line. */
  private _ramp(): (layer: number) => string {
    const dark = this.env.isDark;
    const [first = 1, last = 1] = [this.series[0]?.layer, this.series[this.series.length - 1]?.layer];
    const stops = COLORS.layers[dark ? 'dark' : 'light'];
    return layer => {
      const share = last === first ? 0 : (layer - first) / (last - first);
      return stops[Math.round(share * (stops.length - 1))] ?? stops[0];
    };
  }

  private _shape: ITensorShape = { parts: [], layers: [] };
  private _newest: ITensorRow | undefined;
  private _units = 0;
  protected series: readonly ILayerTrend[] = [];
  protected steps: readonly number[] = [];
  private _spacing = 1;
  private _lines: LayerLines | null = null;
  private _near: number | null = null;
  protected at: { step: number; layer: number } | null = null;
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
