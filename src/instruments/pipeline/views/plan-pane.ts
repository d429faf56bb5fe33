import { formatBytes, formatInteger, formatNumber, timeWords } from '../../../charts';
import { own } from '../../../protocol/records';
import type { IMark, Loaded, INote } from '../../../views/shared/content';
import type { Translate } from '../../../views/shared/translate';
import type { IComparison, IPlanned, IPlanShape } from '../plan';
import { compare, PlanError, ranked, runnerUp, verdict } from '../plan';
import type { Plan } from '../protocol/pipeline.generated';
import { PipelinePane, type IPipelineRead } from './pipeline-reader';
import {
  idleShare,
  planLanes,
  steadyIdleShare,
  type ILaneGroup,
  departures,
  measuredLanes,
  overlaid,
  pathOf
} from './plan-lanes';

/** All schedules on one axis of time, the best first, each with step time, bubble and memory. */
export class SchedulesPane extends PipelinePane {
  override readonly subject = this.t('Schedules');

  protected show(read: IPipelineRead): Loaded {
    const { t } = this;
    const there = read.planned.flatMap(each => ('refused' in each ? [] : [each]));
    this._shown = [...there].sort(
      (a, b) => Number(a.overMemoryBytes > 0) - Number(b.overMemoryBytes > 0) || ranked(a, b)
    );
    const refused = read.planned.flatMap(each => ('refused' in each ? [each.refused.message] : []));
    const within = this._shown.filter(({ overMemoryBytes }) => overMemoryBytes === 0);
    const [first, last] = [within[0], within.at(-1)];
    const isOver = within.length < this._shown.length;
    return {
      content: {
        title: t('%1 schedules side by side', formatInteger(this._shown.length)),
        caption: [
          ...(read.isUnsearched
            ? [t('The search takes long of so large a plan: choose it as schedule to make it.')]
            : []),
          ...(isOver ? [t('What needs more memory than a stage may hold comes last.')] : []),
          ...refused
        ],
        summary:
          first && last
            ? t(
                '%1 is the fastest with %2, %3 the slowest with %4.',
                this.nameOf(first),
                timeWords(first.stepMs),
                this.nameOf(last),
                timeWords(last.stepMs)
              ) +
              tieWords(first, within, each => this.nameOf(each), t) +
              this._steadiest(within, first)
            : '',
        ...this.drawGantt(
          this._shown.map(each => ({
            heading: this._heading(each),
            lanes: planLanes(each, t).map((lane, stage) => ({ ...lane, name: formatInteger(stage) })),
            end: each.nominalMs
          })),
          Math.max(1, ...this._shown.map(({ plan }) => plan.chunks))
        )
      }
    };
  }

  /** The schedule of the lane is shown. */
  override clicked(mark: IMark): void {
    const schedule = this._shown[this.groupOf(mark)]?.schedule;
    if (schedule !== undefined) {
      this.choose({ schedule: schedule as typeof this.options.schedule });
    }
  }

  private _heading(planned: IPlanned): string {
    const { t } = this;
    const { overMemoryBytes, peakBytes, periodMs, stepMs } = planned;
    const peak = Math.max(...peakBytes);
    const steady = steadyIdleShare(planned);
    return [
      this.nameOf(planned),
      t('%1 a step', timeWords(stepMs)),
      t('bubble %1 %', formatNumber(100 * idleShare(planned), 3)),
      ...(steady === null
        ? []
        : [t('steady %1, bubble %2 %', timeWords(periodMs), formatNumber(100 * steady, 3))]),
      ...(peak > 0 ? [formatBytes(peak)] : []),
      ...(overMemoryBytes > 0 ? [t('%1 too much', formatBytes(overMemoryBytes))] : [])
    ].join(' · ');
  }

  /** Which schedule's steps follow each other soonest, where that is another than the fastest. */
  private _steadiest(within: readonly IPlanned[], fastest: IPlanned): string {
    const { t } = this;
    const steadiest = within.reduce((best, each) => (each.periodMs < best.periodMs ? each : best), fastest);
    return steadiest === fastest
      ? ''
      : ` ${t(
          'Where no stage waits for the others at a step’s end, steps of %1 follow soonest, every %2.',
          this.nameOf(steadiest),
          timeWords(steadiest.periodMs)
        )}`;
  }

  private _shown: readonly IPlanned[] = [];
}

/** Say that a plan leans on what was not measured: passes in two parts often take longer than whole ones. */
function guessedWords({ measured }: IPipelineRead, plans: readonly IPlanned[], t: Translate): string[] {
  const isSplit = plans.some(({ plan }) => plan.order.some(order => order.includes('I')));
  return measured !== null && !measured.times.split && isSplit
    ? [t('Its backward passes run in two parts, which was not measured and often takes longer than in one.')]
    : [];
}

/** By how much one plan is shorter than another, and holds more: `−6.2 % ± 0.8, +0 B`. */
function figures(other: IPlanned, now: IPlanned, t: Translate): string {
  const { percent, plusMinus, memoryBytes } = verdict(other, now);
  const signed = (value: number, text: string): string => `${value < 0 ? '−' : '+'}${text}`;
  return t(
    '%1 % ± %2, %3',
    signed(percent, formatNumber(Math.abs(percent), 3)),
    formatNumber(plusMinus, 2),
    signed(memoryBytes, formatBytes(Math.abs(memoryBytes)))
  );
}

/** Say why the best plan comes before another whose step is as long; empty where none is. */
function tieWords(
  best: IPlanned,
  others: readonly IPlanned[],
  nameOf: (planned: IPlanned) => string,
  t: Translate
): string {
  const next = runnerUp(best, others);
  if (next === null) {
    return '';
  }
  const { memoryBytes } = verdict(next, best);
  const bytes = formatBytes(Math.abs(memoryBytes));
  if (timeWords(next.periodMs) === timeWords(best.periodMs)) {
    return ` ${t('A step of %1 takes as long and holds %2 more.', nameOf(next), bytes)}`;
  }
  return ` ${t(
    'A step of %1 takes as long; it comes after, because its steady period is %2, not %3%4.',
    nameOf(next),
    timeWords(next.periodMs),
    timeWords(best.periodMs),
    memoryBytes < 0 ? t(', though it holds %1 less', bytes) : ''
  )}`;
}

const faster = (best: IPlanned | null, each: IPlanned): IPlanned =>
  best === null || ranked(each, best) < 0 ? each : best;

/** Whether a plan is of the stages, chunks, placement and micro-batches of a run. */
function fits(plan: IPlanShape, shape: IPlanShape): boolean {
  return (
    plan.stages === shape.stages &&
    plan.chunks === shape.chunks &&
    plan.micro_batches === shape.micro_batches &&
    // With one chunk it lies nowhere else.
    (plan.placement === shape.placement || plan.chunks === 1)
  );
}

/** Letters of a plan that a message of settings holds. */
const MOST_SENT = 60_000;
/** Sentences about stages that depart from the plan. */
const MOST_DEPARTURES = 3;

/** The plan of one schedule, the last measured step under it, and whether another schedule is worth it. */
export class PlanPane extends PipelinePane {
  protected show(read: IPipelineRead, shown: IPlanned): Loaded {
    const { options, t } = this;
    const comparison = options.measured ? this._comparison(read, shown) : null;
    const plan: ILaneGroup = {
      heading: '',
      lanes: planLanes(shown, t),
      end: shown.nominalMs,
      path: pathOf(shown)
    };
    const group =
      comparison && read.measured
        ? overlaid(plan, measuredLanes(read.measured, comparison.beginMs, t))
        : plan;
    return {
      content: {
        title: this._title(shown),
        caption: this._caption(read, shown, comparison),
        summary: this._summary(shown),
        notes: [...this._appliedNote(), ...this._verdict(read, shown), ...this._departures(comparison)],
        ...this.drawGantt([group], shown.plan.chunks)
      }
    };
  }

  private _title(shown: IPlanned): string {
    const { plan, stepMs } = shown;
    return this.t(
      '%1: %2 stages, %3 micro-batches, %4 a step',
      this.nameOf(shown),
      formatInteger(plan.stages),
      formatInteger(plan.micro_batches),
      timeWords(stepMs)
    );
  }

  private _summary(shown: IPlanned): string {
    const { t } = this;
    const { peakBytes, periodMs, stepMs } = shown;
    const idle = formatNumber(100 * idleShare(shown), 3);
    const peak = Math.max(...peakBytes);
    const steady = steadyIdleShare(shown);
    return [
      peak > 0
        ? t(
            'A step takes %1, stages are idle for %2 % of it, the fullest holds %3.',
            timeWords(stepMs),
            idle,
            formatBytes(peak)
          )
        : t('A step takes %1, stages are idle for %2 % of it.', timeWords(stepMs), idle),
      ...(steady === null
        ? []
        : [
            t(
              'Where no stage waits for the others at a step’s end, one follows every %1, and %2 % of that is idle.',
              timeWords(periodMs),
              formatNumber(100 * steady, 3)
            )
          ])
    ].join(' ');
  }

  private _caption(read: IPipelineRead, shown: IPlanned, comparison: IComparison | null): string[] {
    const { t } = this;
    const { lowMs, highMs, overMemoryBytes, sentBytes, table } = shown;
    const { measured } = read;
    const of = measured?.steps.steps.at(-1);
    return [
      ...(highMs > lowMs
        ? [
            t(
              'Drawn is the mean of steps with their jitter; 95 % of them take %1 to %2.',
              timeWords(lowMs),
              timeWords(highMs)
            )
          ]
        : []),
      t(
        'It cannot deadlock: its %1 operations stand in an order in which none waits for a later one.',
        formatInteger(table.count)
      ),
      t('The line is the critical path: only what it passes makes the step longer.'),
      ...(overMemoryBytes > 0
        ? [t('It needs %1 more than the memory that a stage may hold.', formatBytes(overMemoryBytes))]
        : []),
      ...(sentBytes > 0 ? [t('%1 are sent in a step.', formatBytes(sentBytes))] : []),
      ...(measured !== null && !['cpu', ''].includes(this._device)
        ? [
            t(
              'Passes on %1 are timed by the host until their work is queued, which is too short to plan by: set times under What if.',
              this._device
            )
          ]
        : []),
      ...(measured === null
        ? [t('Times are those set under What if; nothing was measured.')]
        : measured.shape.stages > 1
          ? [
              t(
                'Times are the medians of %1 measured steps%2.',
                formatInteger(measured.times.steps),
                measured.times.split ? '' : t(', backward passes halved into their two parts')
              )
            ]
          : [
              t(
                'Times are those of this run, its model cut into equal stages, backward passes halved into their two parts.'
              )
            ]),
      ...(comparison && of
        ? [
            t(
              'Under each stage: step %1 as measured, %2.',
              formatInteger(of.step),
              timeWords(comparison.measuredMs)
            )
          ]
        : []),
      ...(read.problem === '' ? [] : [read.problem])
    ];
  }

  /** Device of the model; empty if unknown. */
  private get _device(): string {
    return (this.source.hello?.model?.device ?? '').split(':')[0] ?? '';
  }

  /** The last measured step against the plan; null where it is of other stages, chunks or micro-batches. */
  private _comparison({ measured }: IPipelineRead, shown: IPlanned): IComparison | null {
    if (measured === null || measured.shape.stages === 1 || !fits(shown.plan, measured.shape)) {
      return null;
    }
    try {
      return compare(shown, measured.rows);
    } catch (reason) {
      if (reason instanceof PlanError) {
        return null;
      }
      throw reason;
    }
  }

  /** Whether another schedule is worth it, and what this run can switch to as it lies. */
  private _verdict(read: IPipelineRead, shown: IPlanned): INote[] {
    const { source, t } = this;
    const nameOf = (each: IPlanned): string => this.nameOf(each);
    const show = ({ schedule }: IPlanned): void =>
      this.choose({ schedule: schedule as typeof this.options.schedule });
    // Absent where the training does not let viewers have it run a plan.
    const isOpen = own(source.hello?.configurable ?? {}, 'pipeline') && source.connection.kind === 'live';
    const apply = isOpen ? (plan: IPlanned): void => this._apply(plan) : null;
    const { best, measured } = read;
    if (best === null) {
      return [];
    }
    const made = read.planned.flatMap(each => ('refused' in each ? [] : [each]));
    const now = made.find(({ schedule }) => schedule === 'measured') ?? shown;
    const { change } = verdict(best, now);
    const isBest = best === now || best.schedule === read.alike;
    const words = isBest
      ? t('%1 is the fastest of %2 schedules.', nameOf(best), formatInteger(made.length)) +
        tieWords(best, made, nameOf, t)
      : change === 'switch'
        ? t('Switch to %1: %2.', nameOf(best), figures(best, now, t))
        : t('Keep %1: %2 would be %3.', nameOf(now), nameOf(best), figures(best, now, t));
    const text = [words, ...guessedWords(read, isBest ? [] : [best], t)].join(' ');
    const fitting = made.filter(
      each =>
        measured !== null &&
        fits(each.plan, measured.shape) &&
        each.overMemoryBytes === 0 &&
        !['measured', read.alike].includes(each.schedule)
    );
    const requested = fitting.includes(shown) ? shown : fitting.reduce<IPlanned | null>(faster, null);
    const isApplied = requested !== null && apply !== null;
    const first = { text, tone: 'finding' } as const;
    if (isApplied && requested === best && !isBest) {
      return [{ ...first, action: { label: t('Apply at the next step'), run: () => apply(requested) } }];
    }
    const action =
      shown !== best
        ? { label: t('Show it'), run: () => show(best) }
        : now === shown
          ? { label: t('Copy as code'), run: () => void this.actions.copyCode() }
          : { label: t('Show %1', nameOf(now)), run: () => show(now) };
    return [
      { ...first, action },
      ...(isApplied
        ? [
            {
              text: [
                t('This run can switch to %1: %2.', nameOf(requested), figures(requested, now, t)) +
                  tieWords(requested, fitting, nameOf, t),
                ...guessedWords(read, [requested], t)
              ].join(' '),
              tone: 'finding',
              action: { label: t('Apply at the next step'), run: () => apply(requested) }
            } as const
          ]
        : [])
    ];
  }

  private _appliedNote(): INote[] {
    const clear = (): void => {
      this._applied = '';
      this.env.refresh(true);
    };
    return this._applied === ''
      ? []
      : [{ text: this._applied, action: { label: this.t('Dismiss'), run: clear } }];
  }

  private _apply(plan: IPlanned): void {
    this.source.configure({ flags: {}, instruments: { pipeline: orderOf(plan) } }).then(
      ({ step }) => {
        // The first rank hears of it at that step and tells the others for the next one.
        this._applied = this.t('%1 runs from step %2 on.', this.nameOf(plan), formatInteger(step + 1));
        this.env.refresh(true);
      },
      reason => this.env.fail(reason)
    );
  }

  /** What was applied last, and from which step on; empty where nothing was. */
  private _applied = '';

  private _departures(comparison: IComparison | null): INote[] {
    if (comparison === null) {
      return [];
    }
    const hide = { label: this.t('Hide what was measured'), run: () => this.choose({ measured: false }) };
    const text = departures(comparison, timeWords, MOST_DEPARTURES, this.t).join(' ');
    return text === '' ? [] : [{ text, tone: 'finding', action: hide }];
  }
}

/** A plan as settings of the instrument: complete, or if too large by name, to be planned by the training. */
function orderOf({ plan, schedule }: IPlanned): { order: string; plan?: Plan } {
  return JSON.stringify(plan).length < MOST_SENT ? { order: 'plan', plan } : { order: schedule };
}
