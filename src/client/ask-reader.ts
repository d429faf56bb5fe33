import type {
  MomentGroupsRequest,
  MomentRowsRequest,
  ScalarsRequest,
  StreamRequest,
  TrendRequest
} from '../protocol/requests.generated';
import {
  momentsIndexOf,
  type IMomentsGroups,
  type IMomentsIndex,
  type IMomentsReader,
  type IMomentsRows,
  type IRunReader,
  type IStreamAnswer,
  type ITensorIndex
} from './run-reader';
import { type AskOf, type IQuestion, asArray, asObject } from './rest';
import { runDetailOf, tensorIndexOf, type IRunDetail } from './runs-api';

export interface IAskAnswer {
  readonly json: unknown;
  readonly bytes: Uint8Array | null;
}

/** Puts a question to Python; rejects with a `ClientError` where it is refused. */
export type PutQuestion = (method: string, body: object) => Promise<IAskAnswer>;

/**
 * Asks Python for the rows of runs, through the engine's pipe or a widget's comm: the questions of the
 * Jupyter server's endpoints, answered by the same Python code.
 */
export class AskReader implements IRunReader {
  constructor(protected readonly put: PutQuestion) {}

  readonly moments: IMomentsReader = {
    index: (id, since, _wait, signal) => (since === null ? this.momentsIndex(id) : nothingMore(signal)),
    rows: (id, request) => this.momentsRows(id, request),
    groups: (id, request) => this.momentsGroups(id, request)
  };

  /** What there is to say of the run. */
  async detail(id: string): Promise<IRunDetail> {
    return runDetailOf(asObject((await this.ask(id, 'detail')).json));
  }

  async index(id: string): Promise<readonly ITensorIndex[]> {
    return asArray((await this.ask(id, 'index')).json).map(tensorIndexOf);
  }

  async stream(id: string, stream: string, request: StreamRequest): Promise<IStreamAnswer> {
    const { json, bytes } = await this.ask(id, 'stream', { stream, request });
    return { bytes: bytes ?? new Uint8Array(0), sampledEvery: Number(asObject(json).every) };
  }

  async tensorLines(id: string, request: TrendRequest): Promise<Uint8Array> {
    return (await this.ask(id, 'tensor_lines', { request })).bytes ?? new Uint8Array(0);
  }

  async scalarLines(id: string, request: ScalarsRequest): Promise<Uint8Array> {
    return (await this.ask(id, 'scalar_lines', { request })).bytes ?? new Uint8Array(0);
  }

  asker<R extends object, A>({ name, inEngine, read }: IQuestion<R, A>): AskOf<R, A> | undefined {
    return inEngine ? async (id, request) => read((await this.ask(id, name, { request })).json) : undefined;
  }

  private async momentsIndex(id: string): Promise<IMomentsIndex> {
    return momentsIndexOf((await this.ask(id, 'moments_index')).json);
  }

  private async momentsRows(id: string, request: MomentRowsRequest): Promise<IMomentsRows> {
    const { bytes } = await this.ask(id, 'moments_rows', { request });
    return { kind: 'rows', bytes: bytes ?? new Uint8Array(0) };
  }

  private async momentsGroups(id: string, request: MomentGroupsRequest): Promise<IMomentsGroups> {
    const { json, bytes } = await this.ask(id, 'moments_groups', { request });
    const { groups, steps } = asObject(json);
    return {
      kind: 'groups',
      bytes: bytes ?? new Uint8Array(0),
      groups: Number(groups),
      steps: Number(steps)
    };
  }

  private ask(run: string, method: string, body: object = {}): Promise<IAskAnswer> {
    return this.put(method, { run, ...body });
  }
}

/** A run is seen as it is when it is asked: nobody waits here for what comes later. */
function nothingMore(signal: AbortSignal | undefined): Promise<null> {
  return new Promise((_, reject) =>
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
  );
}
