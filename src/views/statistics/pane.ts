import { formatBytes, formatInteger } from '../../charts';
import type { StatisticsOptions } from '../../protocol/views.generated';
import type { IMomentGroups, IMomentIndex, MomentColumn } from '../../store/row-moments';
import { isOver, type IRunSource, type SourceChange } from '../../store/source';
import type { INote, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { StepShown } from '../shared/pinned-step';
import { nearestIndex } from '../shared/scale';
import { emptyState, retryingAfter, type IState, type IStateActions } from '../shared/states';
import { ViewModel, type IViewEnvironment } from '../shared/view-model';
import {
  noteOfBad,
  refusalOf,
  emptyMoments,
  lacksStat,
  mixedState,
  nothingMatches,
  wrongFilter
} from './moment-states';
import type { IReadBy } from '../../client/run-reader';
import { readByWords } from './captions';
import { missingWords } from '../kits/lines/compare';
import type { OtherRuns } from '../kits/lines/other-runs';
import { clockOf, unknownClock, type RunClock, StepAxis } from '../kits/lines/step-axis';
import { oneTensor } from './name-facts';
import { MomentReader, type IMomentQuestion, type IMomentRun } from './reader';
import { quantityWords } from './words';
import { capital } from '../shared/describe';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

/** Most positions of the step slider, and steps searched for the first bad one. */
const MOST_STEPS = 50_000;
/** Of more rows than this the total takes a second: what can be drawn before it is. */
const MANY_ROWS = 1_000_000;

/** What all panes of the explorer share: what there is, refusals, notes, and whose options they have. */
export abstract class MomentPane extends ViewModel<StatisticsOptions> {
  constructor(
    source: IRunSource,
    env: IViewEnvironment<StatisticsOptions>,
    private readonly _others: OtherRuns
  ) {
    super(source, env);
  }

  get subject(): string {
    return capital(quantityWords(this.options, this.t));
  }

  /** One of the runs has more: read again. */
  renew(): void {
    this._isStale = true;
    this.env.refresh(false);
  }

  /** Steps at which something that matches the filter was logged, ascending. */
  get steps(): Float64Array {
    return this._total?.step ?? new Float64Array();
  }

  protected override get actions(): IStateActions {
    return retryingAfter(this.env.actions, () => {
      this._isStale = true;
    });
  }

  concerns(change: SourceChange): boolean {
    const concerned = change.kind === 'rows' && change.stream === 'moments';
    this._isStale ||= concerned;
    return concerned;
  }

  /** Read and draw what the explorer's options ask for, once it is known that there is something. */
  protected abstract fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded>;

  get by(): readonly MomentColumn[] {
    return this.options.by ?? [];
  }

  /** The question that the options ask, of the chosen steps. */
  protected question(by: readonly MomentColumn[], points?: number): IMomentQuestion {
    const { stat, statistic, pattern, where, ratio, mixed, show, smoothing } = this.options;
    const steps = this.env.within(this.options.steps);
    return {
      stat,
      statistic,
      by,
      pattern,
      where: where ?? {},
      ratio,
      mixed,
      show,
      smoothing,
      steps,
      ...(points === undefined ? {} : { points })
    };
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { moments } = this.source;
    if (moments === undefined) {
      return { state: emptyMoments(this.source, null, this.options, this.actions, this.t) };
    }
    this._reader ??= new MomentReader(moments);
    const reader = this._reader;
    const stale = this._isStale || this.index === null;
    const index =
      stale || this.index === null
        ? await reader.index(signal, (done, total) => this._reading(done, total))
        : this.index;
    this._isStale = false;
    this.index = index;
    const unwatch = moments.watchTasks?.((done, of, where) => this._working(done, of, where));
    const wanted = this.options.ratio === 'grad_to_param' ? 'grad' : this.options.stat;
    if (index.stats.every(each => each.rows === 0)) {
      return { state: emptyMoments(this.source, index, this.options, this.actions, this.t) };
    }
    if (!index.stats.some(each => each.stat === wanted && each.rows > 0)) {
      return { state: lacksStat(this.source, index, wanted, options => this.choose(options), this.t) };
    }
    try {
      const rows = index.stats.find(each => each.stat === wanted)?.rows ?? 0;
      const question = JSON.stringify(this.everything);
      const quick = Math.min(MANY_ROWS, moments.limitRows ?? Infinity);
      const early = this.drawsEarly && rows > quick && this._drawnEarly !== question;
      this._drawnEarly = question;
      this._total = early ? null : await reader.groups(this.everything, signal);
      if (this._total?.step.length === 0) {
        return { state: this.nothing() };
      }
      this.otherRuns = (await this._others.open(this.options.runs)).map(run => MomentReader.of(run));
      await Promise.all(
        this.otherRuns.map(({ reader: other }) =>
          stale || other?.version === '' ? other?.index(signal) : null
        )
      );
      const loaded = this._withPlace(await this.fill(reader, signal), moments.readBy);
      if (early) {
        this.env.follow(reader.groups(this.everything, signal));
      }
      return loaded;
    } catch (reason) {
      signal.throwIfAborted();
      const state = this._refused(reason);
      if (state === null) {
        throw reason;
      }
      return { state };
    } finally {
      unwatch?.();
    }
  }

  protected nothing(): IState {
    const state = nothingMatches(this.options, this.actions, options => this.choose(options), this.t);
    const missing = missingWords(
      this.otherRuns.filter(each => each.source === null),
      this.t
    );
    return missing.length > 0 ? { ...state, sentence: missing.join(' ') } : state;
  }

  protected unknownPlaces(): Loaded {
    const { align } = this.options;
    const sentence =
      align === 'step'
        ? this.t('This run does not say how many samples were consumed.')
        : unknownClock(align, this.t);
    return {
      state: emptyState(sentence, this.t('Show steps'), () => this.choose({ x: 'step', align: 'step' }))
    };
  }

  /** Whether there is a picture to draw of many rows before their total is known; `fill` finds none then. */
  protected get drawsEarly(): boolean {
    return false;
  }

  /**
   * Steps and samples of everything that matches the filter; null where it is drawn before they are known.
   */
  protected get total(): IMomentGroups | null {
    return this._total;
  }

  /** The first non-finite values, if there are some, with the way there. */
  protected async notes(reader: MomentReader, signal: AbortSignal): Promise<INote[]> {
    const total = this._total;
    const note = total && (await noteOfBad(reader, total, this.options, signal, this.t));
    return note
      ? [
          {
            text: note.text,
            tone: 'nonfinite',
            action: { label: this.t('Go there'), run: () => this.goTo(note.name, note.step) }
          }
        ]
      : [];
  }

  /**
   * The step of a picture of one: the logged one nearest to the chosen one, which is null for the newest;
   * undefined where there is none.
   */
  protected stepDrawn(): { readonly wanted: number | null; readonly step: number | undefined } {
    const within = this.env.within(this.options.steps);
    const steps = this.steps.filter(each => !within || (each >= within[0] && each <= within[1]));
    const wanted = this._stepShown.of(this.options.step);
    return { wanted, step: steps[wanted === null ? steps.length - 1 : nearestIndex(steps, wanted)] };
  }

  protected stepControls(): Control[] {
    const { source, options, steps, t } = this;
    const choose = (change: { step: number | null }): void => this.choose(change);
    return this._stepShown.controls(Array.from(steps), options.step, source.connection, choose, t);
  }

  /** Say that another step is drawn than was asked for. */
  protected nearWords(wanted: number | null, step: number): string[] {
    return wanted === null || wanted === step
      ? []
      : [this.t('Nothing was logged at step %1; this is the nearest one.', formatInteger(wanted))];
  }

  protected goTo(name: string, step: number): void {
    const { ratio } = this.options;
    // A gain knows modules, and the name is a tensor's.
    const whole = ratio === 'gain' ? ({ ratio: 'none' } as const) : {};
    this.choose({
      ...oneTensor(name),
      ...whole,
      step,
      steps: around(this.steps, step, !isOver(this.source))
    });
  }

  protected open(name: string): void {
    this.choose(oneTensor(name));
  }

  protected otherRuns: readonly IMomentRun[] = [];

  /** How steps lie on the x axis of lines and maps alike; null where the run does not have that unit. */
  protected async axisOf(
    { step, samples }: Pick<IMomentGroups, 'step' | 'samples'>,
    signal: AbortSignal
  ): Promise<{ readonly axis: StepAxis; readonly clock: RunClock } | null> {
    const { align, x } = this.options;
    const clock = await clockOf(this.source, align, signal);
    const xs = align !== 'step' && clock ? step.map(clock) : x === 'step' ? null : samples;
    return clock === null || (align === 'step' && xs?.some(each => each < 0))
      ? null
      : { clock, axis: new StepAxis(step, xs) };
  }

  /** The question for the steps of everything that matches the filter. */
  protected get everything(): MomentGroupsRequest {
    const { stat, pattern, where, ratio } = this.options;
    return {
      stat: ratio === 'grad_to_param' ? 'grad' : stat,
      statistic: 'nonfinite',
      by: [],
      pattern,
      where: where ?? {},
      mixed: true,
      steps: null,
      points: MOST_STEPS
    };
  }

  private _refused(reason: unknown): IState | null {
    const choose = (options: Partial<StatisticsOptions>): void => this.choose(options);
    const refusal = refusalOf(reason);
    const sentence = reason instanceof Error ? reason.message : String(reason);
    if (refusal === 'mixed') {
      return mixedState(sentence, this.options, choose, this.t);
    }
    return refusal === 'invalid' ? wrongFilter(sentence, this.options, choose, this.t) : null;
  }

  private _reading(done: number, total: number): void {
    this.env.waits(
      this.t('Reading the files of %1: %2 of %3…', this.source.name, formatBytes(done), formatBytes(total))
    );
  }

  /** Say where it was read, if elsewhere than by the server. */
  private _withPlace(loaded: Loaded, where: IReadBy | null | undefined): Loaded {
    if (!where || !('content' in loaded)) {
      return loaded;
    }
    const { content } = loaded;
    return { content: { ...content, caption: [...content.caption, readByWords(where, this.t)] } };
  }

  private _working(done: number, of: number, where: IReadBy): void {
    const tasks = this.t('%1 of %2 tasks are done', formatInteger(done), formatInteger(of));
    this.env.waits(`${readByWords(where, this.t)} ${tasks}…`);
  }

  private readonly _stepShown = new StepShown(this.env);
  private _reader: MomentReader | null = null;
  /** What the run has; null before it was asked. */
  index: IMomentIndex | null = null;
  private _isStale = true;
  private _total: IMomentGroups | null = null;
  /** The question for the total that was drawn, or is drawn, before its answer. */
  private _drawnEarly = '';
}

/** Most steps on either side of one that is shown among others. */
const BESIDE = 50;

/**
 * Some steps around one, so that it can be seen among others; `more`: steps still come, and what has space
 * for them shows them.
 */
function around(steps: Float64Array, step: number, more: boolean): [number, number] {
  const at = steps.indexOf(step);
  const end = steps.length - 1;
  const last = steps[Math.min(end, at + BESIDE)] ?? step;
  const apart = last - (steps[end - 1] ?? last - 1);
  const space = more ? Math.max(0, at + BESIDE - end) * apart : 0;
  return [steps[Math.max(0, at - BESIDE)] ?? step, last + space];
}
