import type { IRunSource } from '../../../store/source';
import type { IViewRuns } from '../../view';
import type { IRunsFacts } from './compare-controls';

/** Runs that can be compared with, as they were when they were listed last. */
export class RunList {
  /** @param _changed - Called when they are known. */
  constructor(
    private readonly _source: IRunSource,
    private readonly _runs: IViewRuns | null,
    private readonly _changed: () => void
  ) {
    void this.list();
  }

  /** Null where there are none to compare with, or nobody knows yet. */
  known: IRunsFacts['runs'] = null;

  /** Learn which runs there are. */
  async list(): Promise<void> {
    const runs = await this._runs?.list().catch(() => null);
    if (runs) {
      this.known = runs.filter(({ id }) => id !== this._source.id);
      this._changed();
    }
  }
}
