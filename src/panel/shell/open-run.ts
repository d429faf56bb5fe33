import type { ISignal } from '@lumino/signaling';
import { STREAMS } from '../../protocol/streams.generated';
import type { IRunSource } from '../../store/source';
import { AlarmModel } from '../../instruments/monitor/panel/alarm-model';
import { ControlModel } from '../summary/control-model';
import { PerturbModel } from '../perturb/perturb-model';
import { SummaryModel } from '../summary/summary-model';
import { TraceModel } from '../trace/trace-model';
import { Unfolded } from './unfolded';

/** A chosen run with its models. */
export interface IOpenRun {
  readonly id: string;
  readonly source: IRunSource;
  readonly summary: SummaryModel;
  readonly alarms: AlarmModel;
  readonly trace: TraceModel;
  readonly control: ControlModel;
  readonly perturb: PerturbModel;
  /** Whether the processes are shown one by one. */
  readonly ranks: Unfolded;
  /** Whether what tracing costs is shown in detail. */
  readonly cost: Unfolded;
}

/** What every model of a run has. */
interface IPart {
  readonly changed: ISignal<unknown, void>;
  dispose(): void;
}

/** Make the models of a run. */
export function openRun(id: string, source: IRunSource): IOpenRun {
  const control = new ControlModel(source);
  return {
    id,
    source,
    summary: new SummaryModel(source),
    alarms: new AlarmModel(source),
    trace: new TraceModel(source),
    control,
    perturb: new PerturbModel(source, control),
    ranks: new Unfolded(),
    cost: new Unfolded()
  };
}

/** A run's models, each of which tells of its changes and is let go of. */
export function partsOf({
  summary,
  alarms,
  trace,
  control,
  perturb,
  ranks,
  cost
}: IOpenRun): readonly IPart[] {
  return [summary, alarms, trace, control, perturb, ranks, cost];
}

/** Whether a run has, or may soon have, rows of a stream. Those of other packages are declared by who sends them. */
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
