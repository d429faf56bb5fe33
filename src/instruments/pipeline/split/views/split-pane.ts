import { own } from '../../../../protocol/records';
import { formatInteger } from '../../../../charts';
import type { SplitOptions } from '../../../../protocol/views.generated';
import type { Loaded } from '../../../../views/shared/content';
import { emptyState, type IState } from '../../../../views/shared/states';
import type { Translate } from '../../../../views/shared/translate';
import { PlanError } from '../../plan';
import { GanttPane } from '../../views/gantt-pane';
import { familyTitle, planSplit } from '../plan/plan-split';
import type {
  ISplitLane,
  ISplitPlanned,
  ISplitOperations,
  ISplitPlan,
  SplitOutcome
} from '../plan/planned-split';
import type { ProcessRole } from '../plan/rank-map';
import type { SplitFamily, SplitRequest } from '../protocol/split.generated';
import { isTooFew, splitWhatIf, type ISplitWhatIf } from './split-what-if';
import { type ILane, type ILaneGroup, type IOperation, PlanReader, rangeOf } from '../../views/plan-lanes';
import { type IMeasuredSplit, measuredSplit } from '../plan/measured-split';
import type { IRunSource } from '../../../../store/source';
import { PIPELINE } from '../../client/pipeline-api';

type Options = Required<SplitOptions>;

export interface ISplitRead {
  /** Null where the run has recorded no passes. */
  readonly measured: IMeasuredSplit | null;
  readonly what: ISplitWhatIf;
  readonly plan: ISplitPlan;
  /** That of the run itself; null where it is none of these, or something was changed. */
  readonly run: ISplitPlanned | null;
}

/** Options that change what is drawn, not what is planned. */
const DRAWN: ReadonlySet<string> = new Set([
  ...['layout', 'kind', 'measured', 'hidden'],
  ...['rank_map', 'tensor', 'pipeline', 'data', 'forward_tensor', 'last_forward']
]);

/** Reads the measured steps of a run and plans its layouts, once for all panes. */
export class SplitReader extends PlanReader<ISplitRead> {
  constructor(private readonly _source: IRunSource) {
    super();
  }

  /**
   * Read and plan.
   * @throws PlanError where the options do not go together.
   */
  async read(options: Options): Promise<ISplitRead> {
    const asked = Object.entries(options).filter(([name]) => !DRAWN.has(name));
    return (this.last = await this.once(asked, signal => this._read(options, signal)));
  }

  private async _read(options: Options, signal: AbortSignal): Promise<ISplitRead> {
    const steps = (await this._source.asker?.(PIPELINE)?.(rangeOf(options.steps), signal)) ?? null;
    const measured = measuredSplit(steps);
    const what = splitWhatIf(options, measured);
    const plan = await planSplit(what.request, { signal });
    const [own] = plan.layouts;
    return {
      measured,
      what,
      plan,
      run: what.request.layout && own && !('refused' in own) ? own : null
    };
  }
}

/** What the options draw; null where it is not there. */
export function drawnOf({ plan, run }: ISplitRead, layout: Options['layout']): SplitOutcome | null {
  if (layout === 'run') {
    return run;
  }
  if (layout === 'best') {
    return plan.best;
  }
  const found = plan.layouts.filter(
    each => each !== run && ('refused' in each ? each.family : each.layout.family) === layout
  );
  return found[0] ?? null;
}

export function roleWords(role: ISplitLane['role'] | ProcessRole, t: Translate): string {
  const words: Readonly<Record<ISplitLane['role'] | ProcessRole, string>> = {
    forward: t('forward'),
    backward: t('backward'),
    both: t('both'),
    coordinator: t('coordinator')
  };
  return words[role];
}

/** A family of layouts in words. */
export function familyWords(family: SplitFamily, t: Translate): string {
  const title = familyTitle(family);
  return t(title);
}

/** A layout in a few words: `Split, 2 stages × 2 replicas, tensor parallel 2`. */
export function layoutWords({ layout }: Pick<ISplitPlanned, 'layout'>, t: Translate): string {
  const { family, stages, data, tensor, forward_tensor: forward = tensor } = layout;
  return [
    familyWords(family, t),
    ...(stages.length > 1 ? [t('%1 stages', formatInteger(stages.length))] : []),
    ...(data > 1 ? [t('%1 replicas', formatInteger(data))] : []),
    ...(tensor > 1 ? [t('tensor parallel %1', formatInteger(tensor))] : []),
    ...(forward !== tensor ? [t('forward %1', formatInteger(forward))] : [])
  ].join(', ');
}

/** The devices of a layout: `2 fast, 1 slow`. */
export function deviceWords(
  devices: readonly number[],
  { devices: kinds }: SplitRequest,
  t: Translate
): string {
  const words: Readonly<Record<string, string>> = {
    devices: t('devices'),
    'other devices': t('other devices'),
    'forward processes': t('forward processes'),
    'backward processes': t('backward processes')
  };
  const nameOf = (name = ''): string => own(words, name) ?? name;
  return devices
    .flatMap((count, at) => (count > 0 ? [`${formatInteger(count)} ${nameOf(kinds[at]?.name)}`] : []))
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

type Process = Pick<ISplitLane, 'role' | 'stage'>;

/**
 * The lanes of a layout, for each stage its forward above its backward process, each with that of what was
 * measured under it.
 * @param measured - A step of the same processes; null where none is to be drawn.
 */
export function splitLanes(
  planned: ISplitPlanned,
  measured: IMeasuredSplit | null,
  t: Translate
): ILaneGroup {
  const plan = operationsOf(planned.operations, planned.lanes.length);
  const step = measured === null ? [] : operationsOf(measured.operations, measured.lanes.length);
  const order = planned.lanes
    .map((lane, at) => ({ lane, at }))
    .sort((a, b) => a.lane.stage - b.lane.stage || rank(a.lane) - rank(b.lane));
  const lanes = order.flatMap(({ lane, at }): ILane[] => {
    const under = measured?.lanes.findIndex(each => isSame(each, lane)) ?? -1;
    const below = step[under];
    return [
      { name: laneName(lane, t), operations: plan[at] ?? [] },
      ...(below ? [{ name: t('measured'), operations: below }] : [])
    ];
  });
  const end = lanes.reduce(
    (most, { operations }) => operations.reduce((last, each) => Math.max(last, each.end), most),
    planned.stepMs
  );
  return { heading: '', lanes, end };
}

/** Whether a run's own processes are those of a layout. */
export const isMeasured = ({ lanes }: ISplitPlanned, measured: IMeasuredSplit): boolean =>
  lanes.length === measured.lanes.length &&
  lanes.every(lane => measured.lanes.some(each => isSame(each, lane)));

const isSame = (a: Process, b: Process): boolean => a.role === b.role && a.stage === b.stage;

const rank = ({ role }: Process): number => (role === 'forward' ? 0 : 1);

const laneName = ({ role, stage }: Process, t: Translate): string =>
  role === 'both'
    ? t('stage %1', formatInteger(stage))
    : t('%1 %2', formatInteger(stage), roleWords(role, t));

function operationsOf(columns: ISplitOperations, count: number): IOperation[][] {
  const lanes = Array.from({ length: count }, (): IOperation[] => []);
  columns.lane.forEach((lane, at) => {
    const kind = columns.kind[at] ?? 'F';
    const [begin, end] = [columns.begin[at] ?? NaN, columns.end[at] ?? NaN];
    // What takes no time is not there to be seen.
    if (!(end > begin)) {
      return;
    }
    lanes[lane]?.push({
      // In lanes W are gradients of weights.
      kind: kind === 'W' ? 'S' : kind,
      chunk: 0,
      microBatch: columns.microBatch[at] ?? -1,
      begin,
      end
    });
  });
  return lanes.map(operations => operations.sort((a, b) => a.begin - b.begin));
}
