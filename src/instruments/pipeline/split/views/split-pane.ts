import { formatInteger } from '../../../../charts';
import type { SplitOptions } from '../../../../protocol/views.generated';
import type { Loaded } from '../../../../views/shared/content';
import { emptyState, type IState } from '../../../../views/shared/states';
import type { Translate } from '../../../../views/shared/translate';
import { PlanError } from '../../plan';
import { GanttPane } from '../../views/gantt-pane';
import { familyTitle } from '../plan/plan-split';
import type { ISplitLane, ISplitPlanned } from '../plan/planned-split';
import type { ProcessRole } from '../plan/rank-map';
import type { SplitRequest } from '../protocol/split.generated';
import { drawnOf, type ISplitRead, type SplitReader } from './split-reader';
import { isTooFew } from './split-what-if';

export function roleWords(role: ISplitLane['role'] | ProcessRole, t: Translate): string {
  const words: Readonly<Record<ISplitLane['role'] | ProcessRole, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    both: t('both'),
    coordinator: t('coordinator')
  };
  return words[role];
}

/** A layout in a few words: `Split, 2 stages × 2 replicas, tensor parallel 2`. */
export function layoutWords({ layout }: Pick<ISplitPlanned, 'layout'>, t: Translate): string {
  const { family, stages, data, tensor, forward_tensor: forward = tensor } = layout;
  return [
    familyTitle(family),
    ...(stages.length > 1 ? [t('%1 stages', formatInteger(stages.length))] : []),
    ...(data > 1 ? [t('%1 replicas', formatInteger(data))] : []),
    ...(tensor > 1 ? [t('tensor parallel %1', formatInteger(tensor))] : []),
    ...(forward !== tensor ? [t('forward %1', formatInteger(forward))] : [])
  ].join(', ');
}

/** The devices of a layout: `2 fast, 1 slow`. */
export function deviceWords(devices: readonly number[], { devices: kinds }: SplitRequest): string {
  return devices
    .flatMap((count, at) => (count > 0 ? [`${formatInteger(count)} ${kinds[at]?.name ?? ''}`] : []))
    .join(', ');
}

export abstract class SplitPane extends GanttPane<SplitOptions, SplitReader> {
  readonly subject: string = this.t('Split');

  async load(signal: AbortSignal): Promise<Loaded> {
    try {
      const read = await this.reader.read(this.options);
      signal.throwIfAborted();
      if (isTooFew(read.what)) {
        return { state: this._alone() };
      }
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

  /** Fewer devices than any split needs. */
  private _alone(): IState {
    const { t } = this;
    return emptyState(t('A split needs two devices, and one is set.'), t('Show an example with two'), () =>
      this.choose({ devices: 2 })
    );
  }

  /** Numbers that do not go together. */
  private _refused({ message }: PlanError): IState {
    return emptyState(message, this.t('Go back to the usual'), () => this.choose(USUAL));
  }
}

const USUAL: Partial<SplitOptions> = {
  ...{ tensor: null, pipeline: null, data: null, forward_tensor: null, last_forward: null },
  ...{ devices: null, others: null, micro_batches: null, model_layers: null, most_tensor: null, ahead: null }
};
