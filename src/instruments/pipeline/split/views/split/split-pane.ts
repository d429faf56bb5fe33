import { PlanError } from '../../../plan';
import type { SplitOptions } from '../../../../../protocol/views.generated';
import type { Loaded } from '../../../../../views/shared/content';
import { emptyState, type IState } from '../../../../../views/shared/states';
import { GanttPane } from '../../../views/pipeline/gantt-pane';
import { drawnOf, type ISplitRead, type SplitReader } from './split-reader';
import type { ISplitPlanned } from '../../plan/split-planned';

/** One picture of the layouts. */
export abstract class SplitPane extends GanttPane<SplitOptions, SplitReader> {
  readonly subject: string = this.t('Split');

  async load(signal: AbortSignal): Promise<Loaded> {
    try {
      const read = await this.reader.read(this.options);
      signal.throwIfAborted();
      const drawn = drawnOf(read, this.options.layout);
      return this.show(read, drawn !== null && !('refused' in drawn) ? drawn : null);
    } catch (reason) {
      if (reason instanceof PlanError) {
        return { state: this._refused(reason) };
      }
      throw reason;
    }
  }

  /** Draw what was read; `drawn` is null where the layout that was chosen is not there. */
  protected abstract show(read: ISplitRead, drawn: ISplitPlanned | null): Loaded;

  /** Numbers that do not go together. */
  private _refused({ message }: PlanError): IState {
    return emptyState(message, this.t('Go back to the usual'), () => this.choose(USUAL));
  }
}

const USUAL: Partial<SplitOptions> = {
  ...{ tensor: null, pipeline: null, data: null, forward_tensor: null, last_forward: null },
  ...{ devices: null, others: null, micro_batches: null, model_layers: null, most_tensor: null, ahead: null }
};
