import {
  momentsIndexOf,
  type IMomentsGroups,
  type IMomentsGroupsRequest,
  type IMomentsIndex,
  type IMomentsRows,
  type IMomentsRowsRequest
} from '../client/moments-api';
import type { AskOf, IQuestion } from '../client/question';
import { asArray, asObject } from '../client/rest';
import { textsOf, type ILinesQuery, type IMomentsReader, type LinesStream } from '../client/run-reader';
import {
  runDetailOf,
  streamTexts,
  tensorIndexOf,
  type IRunDetail,
  type IStreamAnswer,
  type IStreamQuery,
  type ITensorIndex
} from '../client/runs-api';
import type { IEngineAnswer, IEngineHost, IEngineReader } from './jobs';

/** Asks the host for the rows of one run: the questions of the Jupyter server's endpoints, answered by the same Python code. */
export class PipeReader implements IEngineReader {
  constructor(
    private readonly run: string,
    private readonly put: IEngineHost['ask']
  ) {}

  readonly moments: IMomentsReader = {
    index: (_id, since, _wait, signal) => (since === null ? this.momentsIndex() : nothingMore(signal)),
    rows: (_id, request) => this.momentsRows(request),
    groups: (_id, request) => this.momentsGroups(request)
  };

  async detail(): Promise<IRunDetail> {
    return runDetailOf(asObject((await this.ask('detail')).json));
  }

  async index(): Promise<readonly ITensorIndex[]> {
    return asArray((await this.ask('index')).json).map(tensorIndexOf);
  }

  async stream(_id: string, stream: string, query: IStreamQuery = {}): Promise<IStreamAnswer> {
    const { json, bytes } = await this.ask('stream', { stream, query: streamTexts(query) });
    return { bytes: bytes ?? new Uint8Array(0), sampledEvery: Number(asObject(json).every) };
  }

  async lines(_id: string, stream: LinesStream, query: ILinesQuery): Promise<Uint8Array> {
    const { bytes } = await this.ask('lines', { stream, query: textsOf(query) });
    return bytes ?? new Uint8Array(0);
  }

  asker<R extends object, A>({ name, inEngine, read }: IQuestion<R, A>): AskOf<R, A> | undefined {
    return inEngine ? async (_id, request) => read((await this.ask(name, { request })).json) : undefined;
  }

  private async momentsIndex(): Promise<IMomentsIndex> {
    return momentsIndexOf((await this.ask('moments_index')).json);
  }

  private async momentsRows(request: IMomentsRowsRequest): Promise<IMomentsRows> {
    const { bytes } = await this.ask('moments_rows', { request });
    return { kind: 'rows', bytes: bytes ?? new Uint8Array(0) };
  }

  private async momentsGroups(request: IMomentsGroupsRequest): Promise<IMomentsGroups> {
    const { json, bytes } = await this.ask('moments_groups', { request });
    const { groups, steps } = asObject(json);
    return {
      kind: 'groups',
      bytes: bytes ?? new Uint8Array(0),
      groups: Number(groups),
      steps: Number(steps)
    };
  }

  private ask(method: string, body: object = {}): Promise<IEngineAnswer> {
    return this.put(method, { run: this.run, ...body });
  }
}

/** A job sees a run as it is when it asks: nobody waits here for what comes later. */
function nothingMore(signal: AbortSignal | undefined): Promise<null> {
  return new Promise((_, reject) =>
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
  );
}
