import { formatBytes, formatInteger, formatNumber, timeWords } from '../../../../charts';
import { compare, PlanError, type IComparison, type IPlanned } from '../../plan';
import { fits, verdictNotes } from './verdict-notes';
import { own } from '../../../../protocol/own';
import type { Plan } from '../../protocol/pipeline.generated';
import type { INote, Loaded } from '../../../../views/shared/content';
import type { ILaneGroup } from './lane';
import { PipelinePane } from './pipeline-pane';
import { departures, idleShare, measuredLanes, overlaid, pathOf, planLanes } from './plan-lanes';
import type { IPipelineRead } from './pipeline-reader';

/** Letters of a plan that a message of settings holds. */
const MOST_SENT = 60_000;
/** Sentences about stages that depart from the plan. */
const MOST_DEPARTURES = 3;

/** The plan of one schedule, the last measured step under it, and whether another schedule is worth it. */
export class PlanPane extends PipelinePane {
  protected show(read: IPipelineRead, shown: IPlanned): Loaded {
    const { env, options, t } = this;
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
        ...this.gantt.draw({
          groups: [group],
          chunks: shown.plan.chunks,
          hidden: options.hidden,
          width: env.width,
          isDark: env.isDark,
          seen: this.seen,
          hide: hidden => this.choose({ hidden })
        })
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
    const { peakBytes, stepMs } = shown;
    const idle = formatNumber(100 * idleShare(shown), 3);
    const peak = Math.max(...peakBytes);
    return peak > 0
      ? t(
          'A step takes %1, stages are idle for %2 % of it, the fullest holds %3.',
          timeWords(stepMs),
          idle,
          formatBytes(peak)
        )
      : t('A step takes %1, stages are idle for %2 % of it.', timeWords(stepMs), idle);
  }

  private _caption(read: IPipelineRead, shown: IPlanned, comparison: IComparison | null): string[] {
    const { t } = this;
    const { lowMs, highMs, overMemoryBytes, sentBytes, table } = shown;
    const { measured } = read;
    const of = measured?.steps.steps.at(-1);
    return [
      ...(highMs > lowMs
        ? [t('With its jitter 95 % of the steps take %1 to %2.', timeWords(lowMs), timeWords(highMs))]
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

  /** Where the model is; empty where nobody said. */
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

  private _verdict(read: IPipelineRead, shown: IPlanned): INote[] {
    const { source, t } = this;
    const isOpen = own(source.hello?.configurable ?? {}, 'pipeline') && source.connection.kind === 'live';
    return verdictNotes(read, shown, {
      t,
      nameOf: each => this.nameOf(each),
      copyCode: () => void this.actions.copyCode(),
      show: schedule => this.choose({ schedule: schedule as typeof this.options.schedule }),
      apply: isOpen ? plan => this._apply(plan) : null
    });
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

  /** Have the training run a plan. */
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

/** A plan as settings of the instrument: whole, or where it is too large for a message by its name, which is planned where the training runs. */
function orderOf({ plan, schedule }: IPlanned): { order: string; plan?: Plan } {
  return JSON.stringify(plan).length < MOST_SENT ? { order: 'plan', plan } : { order: schedule };
}
