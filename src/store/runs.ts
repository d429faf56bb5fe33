import type { IDisposable } from '@lumino/disposable';
import { ClientError } from '../client/rest';
import type { SocketFactory, ClosedState } from '../client/pending-changes';
import type { IRunReader } from '../client/run-reader';
import type { RunsApi } from '../client/runs-api';
import type { Peer } from '../protocol/messages.generated';
import { LiveRun, type ILiveRunOptions } from './live-run';
import { RecordedRun, type IRecordedRunOptions } from './recorded-run';
import { RecordingRows } from './recording';
import { RunLink } from './run-link';
import { ServerMoments } from './server-moments';
import { type IRunSource, StoreError } from './source';

export interface IRunsOptions {
  api: IRunReader & Pick<RunsApi, 'get'>;
  /** How to open a socket to the relay of one run. */
  openSocket: (id: string) => SocketFactory;
  peer: Peer;
  live?: Pick<ILiveRunOptions, 'backlog' | 'tensorBytes' | 'scalarBytes'>;
  recorded?: IRecordedRunOptions;
}

/** A share in a run's source. */
export interface ILease extends IDisposable {
  readonly source: IRunSource;
}

/**
 * Bytes of newest frames that a hub sends of recorded runs: the recording answers for the rest. A first
 * picture waits until all of them are read.
 */
const RECORDED_BACKLOG = 2 << 20;

interface IShared {
  readonly source: Promise<IRunSource>;
  leases: number;
}

/**
 * The runs that a Jupyter server can reach, and one shared source for each that is looked at: panel, tabs and
 * cells of a page share one connection, which closes with the last share.
 */
export class Runs implements IDisposable {
  constructor(private readonly options: IRunsOptions) {}

  /**
   * Share in a run's source, live or recorded as the server says.
   * @throws StoreError when there is no such run or the server does not answer.
   */
  async acquire(id: string): Promise<ILease> {
    if (this._isDisposed) {
      throw new StoreError('disposed', 'The list of runs was closed. Reload the page.');
    }
    let shared = this.shared.get(id);
    if (shared === undefined) {
      shared = { source: this.open(id), leases: 0 };
      this.shared.set(id, shared);
    }
    shared.leases += 1;
    let source: IRunSource;
    try {
      source = await shared.source;
    } catch (error) {
      this.release(id, shared);
      throw error;
    }
    if (this._isDisposed) {
      source.dispose();
      throw new StoreError('disposed', 'The list of runs was closed. Reload the page.');
    }
    if (source.connection.kind === 'closed' && this.shared.get(id) === shared) {
      // Who holds a share keeps what came; who comes new is given what the server has now.
      this.shared.delete(id);
      this.release(id, shared);
      return this.acquire(id);
    }
    return this.lease(id, shared, source);
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    for (const { source } of this.shared.values()) {
      void source.then(
        open => open.dispose(),
        () => undefined
      );
    }
    this.shared.clear();
    this.links.forEach(link => link.dispose());
    this.links.clear();
  }

  private lease(id: string, shared: IShared, source: IRunSource): ILease {
    let isDisposed = false;
    return {
      source,
      get isDisposed() {
        return isDisposed;
      },
      dispose: () => {
        if (!isDisposed) {
          isDisposed = true;
          this.release(id, shared);
        }
      }
    };
  }

  private release(id: string, shared: IShared): void {
    shared.leases -= 1;
    if (shared.leases > 0) {
      return;
    }
    if (this.shared.get(id) === shared) {
      this.shared.delete(id);
    }
    if (!this.shared.has(id)) {
      this.links.get(id)?.dispose();
      this.links.delete(id);
    }
    void shared.source.then(
      open => open.dispose(),
      () => undefined
    );
  }

  private async open(id: string): Promise<IRunSource> {
    const { api, peer, openSocket, live, recorded } = this.options;
    try {
      const answer = await api.get(id);
      if ('hello' in answer) {
        return new RecordedRun(id, answer, api, { ...recorded, link: this.linkOf(id) });
      }
      if (answer.state !== 'live') {
        throw new StoreError('gone', `${answer.name} is gone and left no recording. Choose another run.`);
      }
      const recording = new ServerMoments(id, api.moments, { name: () => answer.name, grows: false });
      const rows = new RecordingRows(id, api, () => answer.name, recorded);
      const diagnose = (): Promise<ClosedState | null> => this.diagnose(id);
      return new LiveRun({
        ...(answer.bytes === undefined ? {} : { backlog: RECORDED_BACKLOG }),
        ...live,
        id,
        name: answer.name,
        peer,
        openSocket: openSocket(id),
        diagnose,
        recording,
        rows,
        link: this.linkOf(id)
      });
    } catch (error) {
      if (error instanceof ClientError) {
        throw new StoreError(error.status === 404 ? 'gone' : 'unavailable', error.message, { cause: error });
      }
      throw error;
    }
  }

  /** The link outlives a source: what was chosen in a live run holds in its recording. */
  private linkOf(id: string): RunLink {
    const link = this.links.get(id) ?? new RunLink();
    this.links.set(id, link);
    return link;
  }

  // A browser is not told why the relay refused an upgrade, so the REST side is asked.
  private async diagnose(id: string): Promise<ClosedState | null> {
    try {
      const answer = await this.options.api.get(id);
      if ('hello' in answer) {
        const reason = answer.status.state === 'finished' ? 'finished' : 'gone';
        return { kind: 'closed', reason, message: 'The run has ended. Its recording can be opened.' };
      }
      return answer.state === 'live'
        ? null
        : { kind: 'closed', reason: 'gone', message: 'The hub of this run is gone. Choose another run.' };
    } catch (error) {
      const status = error instanceof ClientError ? error.status : undefined;
      if (status === 404) {
        return {
          kind: 'closed',
          reason: 'gone',
          message: 'There is no such run any more. Choose another one.'
        };
      }
      return status === 401 || status === 403
        ? {
            kind: 'closed',
            reason: 'forbidden',
            message: 'The Jupyter session has no access any more. Log in again.'
          }
        : null;
    }
  }

  private readonly shared = new Map<string, IShared>();
  private readonly links = new Map<string, RunLink>();
  private _isDisposed = false;
}
