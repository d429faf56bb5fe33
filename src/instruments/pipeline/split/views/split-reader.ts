import type { SplitOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import { PIPELINE } from '../../client/pipeline-api';
import { PlanReader, rangeOf } from '../../views/plan-lanes';
import { measuredSplit, type IMeasuredSplit } from '../plan/measured-split';
import { planSplit } from '../plan/plan-split';
import type { ISplitPlan, ISplitPlanned, SplitOutcome } from '../plan/planned-split';
import { splitWhatIf, type ISplitWhatIf } from './split-what-if';

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
