import type { IDisposable } from '@lumino/disposable';
import type { IRunSource, SourceChange } from '../../../store/source';
import type { IViewRuns } from '../../view';

export interface IOtherRun {
  readonly id: string;
  readonly name: string;
  /** Null where it could not be opened. */
  readonly source: IRunSource | null;
}

interface IShare {
  readonly source: IRunSource;
  dispose(): void;
}

/** Shares in the other runs of a comparison: taken when one is named, released when it is not any more. */
export class OtherRuns implements IDisposable {
  /** @param _runs Where runs come from; null where there is one only. */
  constructor(
    private readonly _runs: IViewRuns | null,
    private readonly _streams: string | readonly string[],
    private readonly _changed: () => void
  ) {}

  /**
   * Return the runs named by their ids, those that cannot be opened among them: they are tried again the next
   * time.
   */
  async open(ids: readonly string[]): Promise<IOtherRun[]> {
    for (const id of [...this._shares.keys()].filter(each => !ids.includes(each))) {
      this._release(id);
    }
    return Promise.all(
      ids.map(async id => {
        const source = await this._sourceOf(id).catch(() => null);
        return { id, name: source?.name ?? id, source };
      })
    );
  }

  dispose(): void {
    this.isDisposed = true;
    [...this._shares.keys()].forEach(id => this._release(id));
  }

  private async _sourceOf(id: string): Promise<IRunSource | null> {
    let share = this._shares.get(id);
    if (share === undefined && this._runs) {
      share = this._runs.acquire(id);
      this._shares.set(id, share);
      share.then(
        ({ source }) => source.changed.connect(this._onChange, this),
        () => this._shares.delete(id)
      );
    }
    return (await share)?.source ?? null;
  }

  private _release(id: string): void {
    const share = this._shares.get(id);
    this._shares.delete(id);
    void share?.then(
      taken => {
        taken.source.changed.disconnect(this._onChange, this);
        taken.dispose();
      },
      () => undefined
    );
  }

  private _onChange(_: IRunSource, change: SourceChange): void {
    if (change.kind === 'rows' && [this._streams].flat().includes(change.stream)) {
      this._changed();
    }
  }

  private readonly _shares = new Map<string, Promise<IShare>>();
  isDisposed = false;
}
