import type { IPipelineSteps } from '../../client/pipeline-api';
import {
  bestOf,
  MADE_SCHEDULES,
  measuredRun,
  planAll,
  PlanError,
  type IMeasuredRun,
  type IPlanned,
  type Outcome
} from '../../plan';
import type { PipelineOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import { whatIf, type IWhatIf } from './what-if';

type Options = Required<PipelineOptions>;

/** What is known for some options. */
export interface IPipelineRead {
  /** Null where the run has recorded no passes. */
  readonly measured: IMeasuredRun | null;
  readonly what: IWhatIf;
  /** What came of each schedule; that of the measured order first, where it is a pipeline's and nothing of it is missing. */
  readonly planned: readonly Outcome[];
  /** The fastest within the memory limit. */
  readonly best: IPlanned | null;
  /** The schedule that orders operations as they were measured; null where none does. */
  readonly alike: string | null;
  /** Whether the search was left out: it takes long of a plan as large as this one. */
  readonly isUnsearched: boolean;
  /** Ends with the search, which takes longer than all others: what is read after it holds that too. Null where it has ended. */
  readonly rest: Promise<unknown> | null;
  /** Why nothing was read of what was measured; empty where that is no problem. */
  readonly problem: string;
}

/** Least time between two plans of a run that goes on. */
const RENEW_MS = 10_000;

/** Passes of micro-batches through virtual stages up to which the search is made unasked: about a second of it. */
const MOST_SEARCHED = 4096;

/** Options that change what is planned, not only what of it is drawn. */
const DRAWN: ReadonlySet<string> = new Set(['schedule', 'kind', 'measured', 'hidden']);

/** Reads the measured steps of a run and plans its schedules, once for all panes. */
export class PipelineReader {
  constructor(private readonly _source: IRunSource) {}

  /** What was read last; null before that. */
  last: IPipelineRead | null = null;

  /**
   * Rows have come: measured steps are to be read anew, unless that was done a moment ago.
   *
   * @returns Whether there is something to read.
   */
  renew(): boolean {
    this._isStale ||= Date.now() - this._readAt > RENEW_MS;
    return this._isStale;
  }

  /**
   * Read and plan.
   *
   * @throws PlanError where the options do not go together.
   */
  async read(options: Options): Promise<IPipelineRead> {
    const key = JSON.stringify([
      options.schedule === 'search',
      Object.entries(options).filter(([name]) => !DRAWN.has(name))
    ]);
    if (key !== this._key || this._isStale) {
      this._end.abort();
      this._end = new AbortController();
      this._key = key;
      this._isStale = false;
      this._readAt = Date.now();
      this._reading = this._read(options, this._end.signal);
    }
    let read = (await this._reading) as IPipelineRead;
    if (read.rest !== null && options.schedule === 'search') {
      await read.rest;
      read = (await this._reading) as IPipelineRead;
    }
    return (this.last = read);
  }

  dispose(): void {
    this._end.abort();
  }

  private async _read(options: Options, signal: AbortSignal): Promise<IPipelineRead> {
    const [first, last] = options.steps ?? [];
    const range = { ...(first === undefined ? {} : { first }), ...(last === undefined ? {} : { last }) };
    const steps = (await this._source.pipeline?.(range, signal)) ?? null;
    const { measured, problem } = measuredOf(steps);
    const what = whatIf(options, measured);
    const { request } = what;
    const made = await planAll({ ...request, schedules: [...MADE_SCHEDULES] }, { signal });
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
      const whole = of([...made, ...found], null);
      if (!signal.aborted) {
        this._reading = Promise.resolve(whole);
      }
      return whole;
    });
    return of(made, searched);
  }

  private _key = '';
  private _isStale = false;
  private _readAt = 0;
  private _end = new AbortController();
  private _reading: Promise<IPipelineRead> | null = null;
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
