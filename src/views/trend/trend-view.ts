import { keptStatistic, layoutOf, readTrend } from '../../aggregate';
import { formatInteger } from '../../charts';
import { inRanges } from '../../protocol/ranges';
import type { TrendOptions } from '../../protocol/views.generated';
import type { ITrendAnswer } from '../../store/line-data';
import type { IRunSource } from '../../store/source';
import type { ITensorShape } from '../../store/tensor-data';
import { countNaming, layerNaming, seriesWords } from '../shared/change-words';
import { type Control, selectControl } from '../shared/control';
import { colorRangeControl, goControl, transformControl } from '../shared/controls';
import { capital, flagInfo, flagWords, omissionWords, thinnedWords } from '../shared/describe';
import { layerWords, chosenLayers, layerName } from '../shared/layers';
import { comparedTitle, comparedWords } from '../kits/lines/compare';
import { toldOf, type ILine } from '../kits/lines/line';
import { LinesView, type ILineRun, type ILinesDrawn, type LinesLoaded } from '../kits/lines/lines-view';
import type { ILineAsk } from '../kits/lines/shape-lines';
import { lockedRange } from '../shared/scale';
import { emptyFlag, emptyState, nothingYet, type IState, type IStateActions } from '../shared/states';
import { logNotes } from '../shared/robust-range';
import { tensorControls } from '../shared/tensor-controls';
import type { IViewEnvironment } from '../shared/view-model';
import type { IViewDefinition } from '../shared/definition';
import { TrendMap } from './trend-map';
import {
  selectionControls,
  statisticControl,
  statisticWords,
  layersWords,
  type ITrendSubject,
  trendWords
} from './trend-words';
import type { TensorSelection } from '../../protocol/requests.generated';

/** What to say where none of the chosen layers is traced. */
function noLayer({ shape, options, choose, t }: ITrendSubject): IState {
  return emptyState(
    t('Layers %1 are not traced; there are rows of %2.', options.layers, layerWords(shape.layers, t)),
    t('Show all layers'),
    () => choose({ layers: 'all' })
  );
}

/** Why there is nothing to draw of an answer; null where there is something. */
async function nothingDrawn(
  subject: ITrendSubject,
  answer: ITrendAnswer,
  steps: readonly [number, number] | null
): Promise<IState | null> {
  const { source, options, actions, choose, t } = subject;
  const { flag, phase, pass, statistic } = options;
  const beyond = beyondPositions(subject, answer);
  if (beyond) {
    return beyond;
  }
  if (answer.lines.length === 0) {
    const traced = steps ? await source.steps(flag, phase, { pass }) : [];
    return steps && traced.length > 0
      ? noStep(subject, steps, traced)
      : emptyFlag(source, flag, phase, actions, t, pass);
  }
  return answer.kept && keptStatistic(statistic) === null
    ? emptyState(
        t(
          'The %1 of whole tensors is not known here: this run says only what the compressor kept.',
          statisticWords(statistic, t)
        ),
        t('Show the rms'),
        () => choose({ statistic: 'rms' })
      )
    : null;
}

/** What to say where none of the chosen positions is there. */
function beyondPositions(
  { options, selection, choose, t }: ITrendSubject,
  { newest }: ITrendAnswer
): IState | null {
  const layout = newest && layoutOf(newest, selection.axes);
  const all = Array.from({ length: layout?.length ?? 0 }, (_, at) => at);
  return !layout?.hasPositions || inRanges(options.positions, all).length > 0
    ? null
    : emptyState(
        t('There is no position %1; they go from 0 to %2.', options.positions, layout.length - 1),
        t('Take all positions'),
        () => choose({ positions: 'all' })
      );
}

function noStep(
  { actions, t }: ITrendSubject,
  [first, last]: readonly [number, number],
  traced: readonly number[]
): IState {
  return nothingYet(
    t(
      'Nothing was traced of steps %1 to %2: there are rows at steps %3 to %4.',
      formatInteger(first),
      formatInteger(last),
      formatInteger(traced[0] ?? 0),
      formatInteger(traced[traced.length - 1] ?? 0)
    ),
    actions,
    t
  );
}

/** A statistic of one flag per layer over steps, as lines or as layer × step. */
export class TrendView extends LinesView<Required<TrendOptions>> {
  constructor(source: IRunSource, env: IViewEnvironment<TrendOptions>) {
    super(source, env, ['tensors']);
  }

  get subject(): string {
    const { part, statistic } = this.options;
    return this.t('%1, %2 by step', this._flag(part ?? null), statisticWords(statistic, this.t));
  }

  protected override get actions(): IStateActions {
    return { ...super.actions, chooseFlag: flag => this.choose({ flag, part: null }) };
  }

  override get drawsWhileDragged(): boolean {
    return this._isLines;
  }

  override zoomed(): void {
    if (this._isLines) {
      super.zoomed();
    }
  }

  override controls(): Control[] {
    const { options, t } = this;
    const statistics = statisticControl(options, statistic => this.choose({ statistic }), t);
    const layout = this._answer?.newest && layoutOf(this._answer.newest, this._selection.axes);
    return [
      ...tensorControls(this.source, options, this._shape, [statistics], change => this.choose(change), t),
      // What differs from kind to kind comes after it: it stays where it is pressed.
      selectControl(
        'kind',
        t('Draw'),
        options.kind,
        { lines: t('lines'), heatmap: t('layer × step') },
        kind => this.choose({ kind })
      ),
      ...selectionControls(options, layout ?? undefined, change => this.choose(change), t),
      transformControl(t('Scale'), options.transform, transform => this.choose({ transform }), t),
      ...(this._isLines ? this.lineControls() : [goControl(step => this.env.goTo(this.map.goTo(step)), t)]),
      ...colorRangeControl(
        options.color_range,
        this._isLines ? null : this.map.domain,
        change => this.choose(change),
        () => this.map.series.map(({ values }) => values),
        t
      )
    ];
  }

  protected readonly map = new TrendMap(this.t, this.env);

  /** Say what is not here any more. */
  protected memoryWords(answer: ITrendAnswer): string[] {
    return [
      ...(answer.memory && answer.kept ? thinnedWords(answer.memory, this.t) : []),
      ...omissionWords(answer, this.t)
    ];
  }

  protected async read(signal: AbortSignal): Promise<LinesLoaded> {
    const { flag, layers: chosen } = this.options;
    this._shape = await this.source.shapeOf(flag);
    this._answer = null;
    const layers = chosenLayers(chosen, this._shape.layers);
    if (layers.length === 0 && this._shape.layers.length > 0) {
      return { state: noLayer(this._subject) };
    }
    return this._isLines ? this._readLines(layers.length, signal) : this._readMap(layers, signal);
  }

  private async _readMap(layers: readonly number[], signal: AbortSignal): Promise<LinesLoaded> {
    const answer = await this._ask(
      this.source,
      layers,
      { steps: this.env.within(this.options.steps) },
      signal
    );
    const state = await this._without(answer);
    if (state) {
      return { state };
    }
    const range = this.colorRange(answer.lines.map(({ values }) => values));
    const { caption, ...picture } = this.map.take({
      series: answer.lines,
      transform: this.options.transform,
      statistic: statisticWords(this.options.statistic, this.t),
      filledTo: answer.evictedRows > 0 ? (answer.memory?.thinnedTo ?? null) : null,
      look: { dark: this.env.isDark, range }
    });
    const { align, runs } = this.options;
    const ofLines =
      align === 'step' && runs.length === 0
        ? []
        : [
            this.t(
              'A map is of this run alone, by step: other runs, and an axis of time or tokens, are for lines.'
            )
          ];
    const moved = layersWords(answer.lines, this._subject, this.leadsWithEvent);
    const words = trendWords(this._subject, answer, moved, [...caption, ...ofLines]);
    const { transform } = this.options;
    const values = answer.lines.map(line => line.values);
    const notes = range ? [] : logNotes(values, transform, change => this.choose(change), this.t);
    return { content: { ...picture, notes, ...words } };
  }

  /** Whether a map's words begin with what departs most: where few of them are seen. */
  protected readonly leadsWithEvent: boolean = false;

  /** Lowest and highest value of a map's colours; null where they follow its values. */
  protected colorRange(_values: readonly ArrayLike<number>[]): readonly [number, number] | null {
    return lockedRange(this.options.color_range ?? []);
  }

  private async _readLines(layers: number, signal: AbortSignal): Promise<LinesLoaded> {
    const { options, t } = this;
    const { compare, statistic } = options;
    const found = await this.compared(layers, (run, ask) => this._linesOf(run, ask, signal), signal);
    const state = this._answer && (await this._without(this._answer));
    if (state || 'kind' in found || this._answer === null) {
      return { state: state ?? ('kind' in found ? found : noLayer(this._subject)) };
    }
    const quantity = statisticWords(statistic, t);
    const yTitle = found.others.length > 0 ? comparedWords(quantity, compare, t) : quantity;
    this.take(found, { yTitle, colorTitle: t('layer'), quantity: yTitle });
    const shown = found.shown.filter(({ isFaint }) => !isFaint);
    const isOne = shown.every(({ run }) => run === shown[0]?.run);
    const told = shown.map((line, at) => ({ ...toldOf(line), layer: (isOne ? line.layer : null) ?? at }));
    const moved = seriesWords(capital(quantity), told, (isOne ? layerNaming : countNaming)(t), t);
    const answer = {
      ...this._answer,
      lines: this._answer.lines.filter(({ layer }) => !options.hidden.includes(String(layer)))
    };
    const words = trendWords(this._subject, answer, moved, this.lineWords(found));
    return { content: { ...words, title: comparedTitle(words.title, options, found.others, t, found.base) } };
  }

  private async _linesOf(
    { source, run, clock, named }: ILineRun,
    ask: ILineAsk,
    signal: AbortSignal
  ): Promise<ILine[]> {
    const { flag, layers: chosen } = this.options;
    const shape = run === 0 ? this._shape : await source.shapeOf(flag);
    const answer = await this._ask(source, chosenLayers(chosen, shape.layers), ask, signal);
    const { lines, total } = answer;
    // The first answer is that of the whole picture; later ones are of places that somebody points at.
    this._answer ??= run === 0 ? answer : null;
    return lines.map(({ layer, steps, values, nonFinite, half, starts }) => ({
      key: String(layer),
      ...named(layerName(layer, this.t), lines.length),
      run,
      layer,
      step: steps,
      x: steps.map(clock),
      value: values,
      nonFinite,
      ...(half ? { half } : {}),
      starts: starts.map(at => steps[at] ?? NaN),
      isThin: steps.length < total && ask.points !== undefined,
      of: total,
      digits: 9
    }));
  }

  private _ask(
    source: IRunSource,
    layers: readonly number[],
    { steps, points }: ILineAsk,
    signal: AbortSignal
  ): Promise<ITrendAnswer> {
    const { flag, phase, pass, rank, statistic } = this.options;
    const part = this.options.part ?? this._shape.parts[0];
    const query = {
      flag,
      phase,
      pass,
      rank: rank ?? ('lowest' as const),
      layers,
      statistic,
      selection: this._selection,
      ...(part ? { part } : {}),
      ...(steps ? { steps } : {}),
      ...(points === undefined ? {} : { points })
    };
    return readTrend(source, query, signal);
  }

  private _without(answer: ITrendAnswer): Promise<IState | null> {
    this._answer = answer;
    return nothingDrawn(this._subject, answer, this.env.within(this.options.steps));
  }

  private get _isLines(): boolean {
    return this.options.kind === 'lines';
  }

  protected override get drawn(): ILinesDrawn {
    return this._isLines ? this.picture : this.map;
  }

  private get _selection(): TensorSelection {
    const { flag, positions, vector, interval } = this.options;
    return { positions, vector, interval, axes: flagInfo(this.source.hello, flag)?.axes ?? [] };
  }

  private get _subject(): ITrendSubject {
    const { source, options, t, actions } = this;
    return {
      source,
      options,
      shape: this._shape,
      selection: this._selection,
      flag: this._flag(options.part ?? this._shape.parts[0] ?? null),
      memory: answer => this.memoryWords(answer),
      choose: change => this.choose(change),
      actions,
      t
    };
  }

  private _flag(part: string | null): string {
    const { flag, pass } = this.options;
    return flagWords(this.source.hello, flag, part, this.t, pass);
  }

  private _shape: ITensorShape = { parts: [], layers: [] };
  private _answer: ITrendAnswer | null = null;
}

export const view: IViewDefinition<TrendOptions> = { create: (source, env) => new TrendView(source, env) };
