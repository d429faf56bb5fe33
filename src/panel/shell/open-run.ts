import { Signal } from '@lumino/signaling';
import { STREAMS } from '../../protocol/streams';
import type { IRunSource } from '../../store/source';
import { ControlModel } from '../summary/control-model';
import { PerturbModel } from '../perturb/perturb-model';
import { SummaryModel } from '../summary/summary-model';
import { TraceModel } from '../trace/trace-model';
import type { IPanelPart, IRunPart } from './panel-part';

/** Whether something is unfolded, for those who unfold it from elsewhere. */
class Unfolded {
  readonly changed = new Signal<this, void>(this);

  get open(): boolean {
    return this._open;
  }

  unfold(): void {
    this._set(true);
  }

  toggle(): void {
    this._set(!this._open);
  }

  dispose(): void {
    Signal.clearData(this);
  }

  private _set(open: boolean): void {
    if (open !== this._open) {
      this._open = open;
      this.changed.emit();
    }
  }

  private _open = false;
}

export interface IOpenRun {
  readonly id: string;
  readonly source: IRunSource;
  readonly summary: SummaryModel;
  readonly trace: TraceModel;
  readonly control: ControlModel;
  readonly perturb: PerturbModel;
  /** Whether the processes are shown one by one. */
  readonly ranks: Unfolded;
  /** Whether what tracing costs is shown in detail. */
  readonly cost: Unfolded;
  /** What instruments add. */
  readonly instruments: readonly IRunPart[];
}

/** Make the models of a run, those of the instruments' parts of the panel among them. */
export function openRun(id: string, source: IRunSource, parts: readonly IPanelPart[] = []): IOpenRun {
  const control = new ControlModel(source);
  return {
    id,
    source,
    summary: new SummaryModel(source),
    trace: new TraceModel(source),
    control,
    perturb: new PerturbModel(source, control),
    ranks: new Unfolded(),
    cost: new Unfolded(),
    instruments: parts.map(part => part.open(id, source))
  };
}

/** A run's models, each of which tells of its changes and is let go of. */
export function partsOf({
  summary,
  trace,
  control,
  perturb,
  ranks,
  cost,
  instruments
}: IOpenRun): readonly Pick<IRunPart, 'changed' | 'dispose'>[] {
  return [summary, trace, control, perturb, ranks, cost, ...instruments];
}

/** How many alarms a run has. */
export function alarmsOf(open: IOpenRun | null): number {
  return open?.instruments.reduce((sum, { alarms = 0 }) => sum + alarms, 0) ?? 0;
}

/** Whether a run has, or may soon have, rows of a stream; those of other packages are declared. */
export function hasRows({ source, trace }: IOpenRun, stream: string): boolean {
  const { hello, status } = source;
  switch (stream) {
    case 'tensors':
      return trace.tracing;
    case 'moments':
      return hello?.statistics !== undefined;
    default:
      return Object.hasOwn({ ...STREAMS, ...hello?.streams, ...status?.streams }, stream);
  }
}
