import { MOMENT_STATS } from '../protocol/moment-statistics';
import type { MomentGroupsRequest, MomentRowsRequest } from '../protocol/requests.generated';
import type { MeasuredTensors } from '../protocol/views.generated';
import { asArray, asObject, badAnswer, jsonOf, runPath, type Rest } from './rest';

export interface IMomentIndex {
  /** Changes whenever there is more. */
  readonly version: string;
  readonly stats: readonly {
    readonly stat: MeasuredTensors;
    readonly rows: number;
    /** First and last step that has rows. */
    readonly first: number;
    readonly last: number;
    /** Number of steps that have rows. */
    readonly steps: number;
  }[];
  /** Every tensor's name; rows refer to them by index. Names are only ever added at the end. */
  readonly names: readonly string[];
  /** Whether steps are known as samples too. */
  readonly samples: boolean;
  /** Sentences about what is superseded, left out or unreadable. */
  readonly warnings: readonly string[];
}

export interface IMomentsIndex extends IMomentIndex {
  /** Index of the first of `names`: those before it are known to who named a version. */
  readonly namesFrom: number;
}

/** Instead of an answer: the files are being read for the first time. In bytes. */
export interface IReading {
  readonly kind: 'reading';
  readonly done: number;
  readonly total: number;
}

/** Rows, as an Arrow IPC stream. */
export interface IMomentsRows {
  readonly kind: 'rows';
  readonly bytes: Uint8Array;
}

/** Groups, as an Arrow IPC stream, and how many groups and steps there were. */
export interface IMomentsGroups {
  readonly kind: 'groups';
  readonly bytes: Uint8Array;
  readonly groups: number;
  readonly steps: number;
}

export interface IMomentsReader {
  /**
   * What there is.
   *
   * @param since - The version that is known; the answer then comes when there is more.
   * @param wait - How long to wait for it, seconds.
   * @returns Null where there is no more than was known.
   */
  index(
    id: string,
    since: string | null,
    wait: number,
    signal?: AbortSignal
  ): Promise<IMomentsIndex | IReading | null>;
  rows(id: string, request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentsRows | IReading>;
  groups(id: string, request: MomentGroupsRequest, signal?: AbortSignal): Promise<IMomentsGroups | IReading>;
}

/** The endpoints of a run's statistics. Every method rejects with a `ClientError`. */
export class MomentsApi implements IMomentsReader {
  constructor(private readonly rest: Rest) {}

  async index(
    id: string,
    since: string | null,
    wait: number,
    signal?: AbortSignal
  ): Promise<IMomentsIndex | IReading | null> {
    const query = new URLSearchParams({ wait: String(wait), ...(since === null ? {} : { since }) });
    const response = await this.rest.request(`${runPath(id)}/moments?${query}`, { signal }, 304);
    if (response.status === 304) {
      return null;
    }
    return response.status === 202 ? readingOf(response) : momentsIndexOf(await jsonOf(response));
  }

  async rows(id: string, request: MomentRowsRequest, signal?: AbortSignal): Promise<IMomentsRows | IReading> {
    const response = await this.rest.ask(`${runPath(id)}/moments/rows`, request, signal);
    return response.status === 202
      ? readingOf(response)
      : { kind: 'rows', bytes: new Uint8Array(await response.arrayBuffer()) };
  }

  async groups(
    id: string,
    request: MomentGroupsRequest,
    signal?: AbortSignal
  ): Promise<IMomentsGroups | IReading> {
    const response = await this.rest.ask(`${runPath(id)}/moments/groups`, request, signal);
    if (response.status === 202) {
      return readingOf(response);
    }
    const header = (name: string): number => Number(response.headers.get(name) ?? 0);
    return {
      kind: 'groups',
      bytes: new Uint8Array(await response.arrayBuffer()),
      groups: header('X-Megalens-Groups'),
      steps: header('X-Megalens-Steps')
    };
  }
}

async function readingOf(response: Response): Promise<IReading> {
  const { done, total } = asObject(asObject(await jsonOf(response)).progress);
  return { kind: 'reading', done: Number(done) || 0, total: Number(total) || 0 };
}

export function momentsIndexOf(value: unknown): IMomentsIndex {
  const { version, stats, names_from, names, samples, warnings } = asObject(value);
  if (typeof version !== 'string') {
    throw badAnswer('statistics without a version');
  }
  return {
    version,
    stats: asArray(stats).flatMap(entry => {
      const { stat: name, rows, first, last, steps } = asObject(entry);
      // What a later version measures is left out.
      const stat = MOMENT_STATS.find(known => known === name);
      const numbers = { rows: Number(rows), first: Number(first), last: Number(last), steps: Number(steps) };
      return stat === undefined ? [] : [{ stat, ...numbers }];
    }),
    namesFrom: Number(names_from) || 0,
    names: asArray(names).map(String),
    samples: samples === true,
    warnings: asArray(warnings).map(String)
  };
}
