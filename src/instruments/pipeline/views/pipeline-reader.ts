import type { PipelineOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import { PIPELINE, type IPipelineSteps } from '../client/pipeline-api';
import type { IMeasuredRun, IPlanned, Outcome } from '../plan';
import { bestOf, MADE_SCHEDULES, measuredRun, planAll, PlanError } from '../plan';
import { drawnPlan, PlanReader, rangeOf } from './plan-lanes';
import { whatIf, type IWhatIf } from './what-if';
import type { Loaded } from '../../../views/shared/content';
import { emptyState, type IState } from '../../../views/shared/states';
import { GanttPane, scheduleWords } from './gantt-pane';

type Options = Required<PipelineOptions>;

export interface IPipelineRead {
  /** Null where the run has recorded no passes. */
  readonly measured: IMeasuredRun | null;
  readonly what: IWhatIf;
  /** The outcome of each schedule; the measured order first, where it is a pipeline's and complete. */
  readonly planned: readonly Outcome[];
  /** The fastest within the memory limit. */
  readonly best: IPlanned | null;
  /** The schedule that orders operations as they were measured; null where none does. */
  readonly alike: string | null;
  /** Whether the search was left out: it takes long of a plan as large as this one. */
  readonly isUnsearched: boolean;
  /** Resolves with the slow search: reads after it include its result. Null once it has ended. */
  readonly rest: Promise<unknown> | null;
  /** Why nothing was read of what was measured; empty where that is no problem. */
  readonly problem: string;
}

/** Passes (micro-batches × virtual stages) up to which the search runs unasked: about a second. */
const MOST_SEARCHED = 4096;

/** Options that change what is planned, not only what of it is drawn. */
const DRAWN: ReadonlySet<string> = new Set(['schedule', 'kind', 'measured', 'hidden']);

/** Reads the measured steps of a run and plans its schedules, once for all panes. */
export class PipelineReader extends PlanReader<IPipelineRead> {
  constructor(private readonly _source: IRunSource) {
    super();
  }

  /**
   * Read and plan.
   * @throws PlanError where the options do not go together.
   */
  async read(options: Options): Promise<IPipelineRead> {
    const asked = [
      options.schedule === 'search',
      Object.entries(options).filter(([name]) => !DRAWN.has(name))
    ];
    let read = await this.once(asked, signal => this._read(options, signal));
    if (read.rest !== null && options.schedule === 'search') {
      await read.rest;
      read = (await this.reading) as IPipelineRead;
    }
    return (this.last = read);
  }

  private async _read(options: Options, signal: AbortSignal): Promise<IPipelineRead> {
    const steps = (await this._source.asker?.(PIPELINE)?.(rangeOf(options.steps), signal)) ?? null;
    const { measured, problem } = measuredOf(steps);
    const what = whatIf(options, measured);
    const { request } = what;
    const made = (await planAll({ ...request, schedules: [...MADE_SCHEDULES] }, { signal })).map(drawnPlan);
    const of = (planned: readonly Outcome[], rest: Promise<unknown> | null): IPipelineRead => ({
      measured,
      what,
      planned,
      best: bestOf(planned),
      alike: alikeOf(planned),
      isUnsearched: false,
      rest,
      problem
    });
    const { stages, micro_batches: count, chunks = 1, plan: _own, ...rest } = request;
    if (options.schedule !== 'search' && stages * count * chunks > MOST_SEARCHED) {
      return { ...of(made, null), isUnsearched: true };
    }
    const searched = planAll(
      { ...rest, stages, micro_batches: count, chunks, schedules: ['search'] },
      { signal }
    ).then(found => {
      const whole = of([...made, ...found.map(drawnPlan)], null);
      if (!signal.aborted) {
        this.reading = Promise.resolve(whole);
      }
      return whole;
    });
    return of(made, searched);
  }
}

/** What the options draw: a plan, or why there is none. */
export function shownOf(read: IPipelineRead, schedule: Options['schedule']): Outcome | null {
  return schedule === 'best' ? read.best : (read.planned.find(each => each.schedule === schedule) ?? null);
}

function measuredOf(steps: IPipelineSteps | null): { measured: IMeasuredRun | null; problem: string } {
  try {
    return { measured: measuredRun(steps), problem: '' };
  } catch (reason) {
    if (reason instanceof PlanError) {
      return { measured: null, problem: reason.message };
    }
    throw reason;
  }
}

/** Which of the schedules is the one that was measured. */
function alikeOf(planned: readonly Outcome[]): string | null {
  const orderOf = (each: Outcome | undefined): string =>
    each && !('refused' in each) ? each.plan.order.join('\n') : '';
  const measured = orderOf(planned.find(({ schedule }) => schedule === 'measured'));
  const alike = planned.find(each => each.schedule !== 'measured' && orderOf(each) === measured);
  return measured === '' ? null : (alike?.schedule ?? null);
}

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
