import { asArray, asObject, badAnswer, jsonOf, runPath, type Rest } from './rest';
import type { IMomentsReader } from './run-reader';

/** What the server says that a run has of the stream `moments`. */
export interface IMomentsIndex {
  readonly version: string;
  readonly stats: readonly {
    readonly stat: string;
    readonly rows: number;
    readonly first: number;
    readonly last: number;
    readonly steps: number;
  }[];
  /** Place of the first of `names`: what comes before it is known by who named a version. */
  readonly namesFrom: number;
  readonly names: readonly string[];
  readonly samples: boolean;
  readonly warnings: readonly string[];
}

/** Instead of an answer: the files are being read for the first time. In bytes. */
export interface IReading {
  readonly kind: 'reading';
  readonly done: number;
  readonly total: number;
}

/** Which rows to send, as protocol/README.md says. */
export interface IMomentsRowsRequest {
  readonly stats: readonly string[];
  readonly where?: object;
  readonly first?: number;
  readonly last?: number;
  readonly limit_rows?: number;
}

/** Which groups to make, as protocol/README.md says. */
export interface IMomentsGroupsRequest {
  readonly stat: string;
  readonly statistic: string;
  readonly by: readonly string[];
  readonly pattern?: string;
  readonly where?: object;
  readonly first?: number;
  readonly last?: number;
  readonly points?: number;
  readonly series?: number;
  readonly ratio?: string;
  readonly mixed?: boolean;
  readonly show?: string;
  readonly smoothing?: number;
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

  async rows(
    id: string,
    request: IMomentsRowsRequest,
    signal?: AbortSignal
  ): Promise<IMomentsRows | IReading> {
    const init = { method: 'POST', body: JSON.stringify(request), signal };
    const response = await this.rest.request(`${runPath(id)}/moments/rows`, init);
    return response.status === 202
      ? readingOf(response)
      : { kind: 'rows', bytes: new Uint8Array(await response.arrayBuffer()) };
  }

  async groups(
    id: string,
    request: IMomentsGroupsRequest,
    signal?: AbortSignal
  ): Promise<IMomentsGroups | IReading> {
    const init = { method: 'POST', body: JSON.stringify(request), signal };
    const response = await this.rest.request(`${runPath(id)}/moments/groups`, init);
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

/** Check an index of statistics that came as JSON. */
export function momentsIndexOf(value: unknown): IMomentsIndex {
  const { version, stats, names_from, names, samples, warnings } = asObject(value);
  if (typeof version !== 'string') {
    throw badAnswer('statistics without a version');
  }
  return {
    version,
    stats: asArray(stats).map(entry => {
      const { stat, rows, first, last, steps } = asObject(entry);
      return {
        stat: String(stat),
        rows: Number(rows),
        first: Number(first),
        last: Number(last),
        steps: Number(steps)
      };
    }),
    namesFrom: Number(names_from) || 0,
    names: asArray(names).map(String),
    samples: samples === true,
    warnings: asArray(warnings).map(String)
  };
}
