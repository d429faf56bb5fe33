import type { PipelineOptions } from '../../../protocol/views.generated';
import type { Loaded } from '../../../views/shared/content';
import { emptyState, type IState } from '../../../views/shared/states';
import { PlanError, type IPlanned, type Outcome } from '../plan';
import { GanttPane } from './gantt-pane';
import { scheduleWords } from './operation-words';
import { shownOf, type IPipelineRead, type PipelineReader } from './pipeline-reader';

export abstract class PipelinePane extends GanttPane<PipelineOptions, PipelineReader> {
  readonly subject = this.t('Pipeline');

  async load(signal: AbortSignal): Promise<Loaded> {
    const { options } = this;
    try {
      const read = await this.reader.read(options);
      signal.throwIfAborted();
      this._alike = read.alike;
      if (read.rest !== null) {
        this.env.follow(read.rest);
      }
      const shown = shownOf(read, options.schedule);
      if (shown !== null && !('refused' in shown)) {
        return this.show(read, shown);
      }
      return { state: this._absent(read, shown) };
    } catch (reason) {
      if (reason instanceof PlanError) {
        return { state: this._refused(reason.message) };
      }
      throw reason;
    }
  }

  protected abstract show(read: IPipelineRead, shown: IPlanned): Loaded;

  /** A schedule by its name; the measured order also by that of the schedule that it is. */
  protected nameOf({ schedule }: Pick<IPlanned, 'schedule'>): string {
    return schedule === 'measured' && this._alike !== null
      ? this.t('%1 as measured', scheduleWords(this._alike, this.t))
      : scheduleWords(schedule, this.t);
  }

  private _alike: string | null = null;

  /** Why the schedule that was chosen is not drawn. */
  private _absent(read: IPipelineRead, shown: Outcome | null): IState {
    const { options, t } = this;
    const refused = read.planned.flatMap(each => ('refused' in each ? [each.refused.message] : []));
    if (shown === null && read.planned.length === refused.length) {
      return this._refused(refused[0] ?? '');
    }
    const sentence =
      shown !== null && 'refused' in shown
        ? shown.refused.message
        : options.schedule === 'measured'
          ? read.problem || t('No passes of a pipeline are recorded with so many stages and micro-batches.')
          : t('No schedule stays within this memory.');
    return emptyState(sentence, t('Show the best'), () => this.choose(this._best(read)));
  }

  /** Numbers that no schedule takes. */
  private _refused(sentence: string): IState {
    return emptyState(sentence, this.t('Go back to the usual'), () => this.choose(USUAL));
  }

  /** What to choose to see something: more memory where no schedule stays within it. */
  private _best({ best }: IPipelineRead): Partial<PipelineOptions> {
    return best === null ? { schedule: 'best', memory_gb: null } : { schedule: 'best' };
  }
}

const USUAL = { chunks: 2, micro_batches: 0, stages: 0 };
