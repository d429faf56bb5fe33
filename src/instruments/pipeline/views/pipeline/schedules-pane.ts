import { formatBytes, formatInteger, formatNumber, timeWords } from '../../../../charts';
import type { IPlanned } from '../../plan';
import type { IMark, Loaded } from '../../../../views/shared/content';
import { PipelinePane } from './pipeline-pane';
import type { IPipelineRead } from './pipeline-reader';
import { idleShare, planLanes } from './plan-lanes';

/** All schedules under one another on one axis of time, the fastest first, each with its step time, bubble and memory. */
export class SchedulesPane extends PipelinePane {
  override readonly subject = this.t('Schedules');

  protected show(read: IPipelineRead): Loaded {
    const { env, options, t } = this;
    const there = read.planned.flatMap(each => ('refused' in each ? [] : [each]));
    this._shown = [...there].sort(
      (a, b) => Number(a.overMemoryBytes > 0) - Number(b.overMemoryBytes > 0) || a.stepMs - b.stepMs
    );
    const refused = read.planned.flatMap(each => ('refused' in each ? [each.refused.message] : []));
    const within = this._shown.filter(({ overMemoryBytes }) => overMemoryBytes === 0);
    const [first, last] = [within[0], within.at(-1)];
    return {
      content: {
        title: t('%1 schedules side by side', formatInteger(this._shown.length)),
        caption: [
          ...(read.isUnsearched
            ? [t('The search takes long of so large a plan: choose it as schedule to make it.')]
            : []),
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
              )
            : '',
        ...this.gantt.draw({
          groups: this._shown.map(each => ({
            heading: this._heading(each),
            lanes: planLanes(each, t).map((lane, stage) => ({ ...lane, name: formatInteger(stage) })),
            end: each.nominalMs
          })),
          chunks: Math.max(1, ...this._shown.map(({ plan }) => plan.chunks)),
          hidden: options.hidden,
          width: env.width,
          isDark: env.isDark,
          seen: this.seen,
          hide: hidden => this.choose({ hidden })
        })
      }
    };
  }

  /** The schedule of the lane is shown. */
  override clicked(mark: IMark): void {
    const schedule = this._shown[this.gantt.groupOf(mark)]?.schedule;
    if (schedule !== undefined) {
      this.choose({ schedule: schedule as typeof this.options.schedule });
    }
  }

  private _heading(planned: IPlanned): string {
    const { t } = this;
    const { overMemoryBytes, peakBytes, stepMs } = planned;
    const peak = Math.max(...peakBytes);
    return [
      this.nameOf(planned),
      t('%1 a step', timeWords(stepMs)),
      t('bubble %1 %', formatNumber(100 * idleShare(planned), 3)),
      ...(peak > 0 ? [formatBytes(peak)] : []),
      ...(overMemoryBytes > 0 ? [t('%1 too much', formatBytes(overMemoryBytes))] : [])
    ].join(' · ');
  }

  private _shown: readonly IPlanned[] = [];
}
