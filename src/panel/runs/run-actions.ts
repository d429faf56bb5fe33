import type { TranslationBundle } from '@jupyterlab/translation';
import { runLabel } from '../../client/run-reader';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IMegalensRuns, IRunEntry } from '../../tokens';
import { faultSentence } from '../../views/shared/fault-text';
import type { IPanelHost } from '../shell/panel-host';
import type { RunsModel } from './runs-model';

/** What a person does to runs in dialogs: each asks, acts, and says what failed. */
export class RunActions {
  constructor(
    private readonly service: IMegalensRuns,
    private readonly runs: RunsModel,
    private readonly host: IPanelHost,
    private readonly trans: TranslationBundle
  ) {}

  async rename(entry: IRunEntry): Promise<void> {
    const name = await this.host.askName(entry.name);
    if (name !== null && name.trim() !== '' && name !== entry.name) {
      await this._reporting(
        this.trans.__('The run could not be renamed'),
        this.runs.describe(entry.id, { name: name.trim() })
      );
    }
  }

  async annotate(entry: IRunEntry): Promise<void> {
    const written = await this.host.askNotes(entry);
    if (written !== null) {
      await this._reporting(
        this.trans.__('Notes and tags could not be written'),
        this.runs.describe(entry.id, written)
      );
    }
  }

  /** Ask whether recordings shall be deleted, and delete them. */
  async remove(entries: readonly IRunEntry[]): Promise<void> {
    if (entries.length > 0 && (await this.host.askDelete(entries))) {
      await this._delete(entries);
    }
  }

  /** Ask how many of the newest recordings to keep, and delete the rest. */
  async keepNewest(entries: readonly IRunEntry[] = this.runs.entries): Promise<void> {
    await this._delete(await this.host.askKeepNewest(entries));
  }

  /** Ask for an address and connect to the hub there. */
  async connect(): Promise<void> {
    const answer = await this.host.askHub();
    if (answer !== null) {
      await this._reporting(
        this.trans.__('The hub could not be reached'),
        this.runs.connect(answer.address, answer.token, answer.foreign)
      );
    }
  }

  /** Ask for a path and open the raw-moment files there. */
  async openStatistics(): Promise<void> {
    const path = await this.host.askStatistics();
    if (path !== null && path.trim() !== '') {
      const opened = this.runs.openStatistics(path.trim());
      await this._reporting(this.trans.__('The statistics could not be opened'), opened);
      const left = await opened.catch(() => []);
      if (left.length > 0) {
        await this.host.tell(this.trans.__('Some folders were left out'), left.join(' '));
      }
    }
  }

  /** Ask what a report shall hold, have the server make it and hand it over. */
  async exportReport(entry: IRunEntry, views: readonly ViewOptions[]): Promise<void> {
    const request = await this.host.askReport(entry, views);
    if (request === null) {
      return;
    }
    const abort = new AbortController();
    const work = this.service.report(entry.id, request, abort.signal);
    try {
      const file = await this.host.progress(this.trans.__('Making the report…'), work, () => abort.abort());
      this.host.save(file.name, file.content);
    } catch (error) {
      if (!abort.signal.aborted) {
        await this.host.tell(this.trans.__('The report could not be made'), error);
      }
    }
  }

  /** Delete recordings one after the other, and report at the end which could not be deleted and why. */
  private async _delete(entries: readonly IRunEntry[]): Promise<void> {
    const retained: string[] = [];
    const failed: { readonly run: string; readonly error: unknown }[] = [];
    for (const entry of entries) {
      try {
        if (!(await this.runs.remove(entry.id))) {
          retained.push(runLabel(entry));
        }
      } catch (error) {
        failed.push({ run: runLabel(entry), error });
      }
    }
    const [first] = failed;
    if (first !== undefined && failed.length === 1) {
      await this.host.tell(this.trans.__('%1 could not be deleted', first.run), first.error);
    } else if (failed.length > 1) {
      await this.host.tell(
        this.trans.__('%1 of %2 recordings could not be deleted', failed.length, entries.length),
        failed.map(({ run, error }) => `${run}: ${faultSentence(error)}`).join('\n')
      );
    }
    if (retained.length > 0) {
      this.host.warn(
        this.trans.__(
          'The recording is deleted. Other files lie in its folder and stay: %1.',
          retained.join(', ')
        )
      );
    }
  }

  private async _reporting(title: string, work: Promise<unknown>): Promise<void> {
    try {
      await work;
    } catch (error) {
      await this.host.tell(title, error);
    }
  }
}
