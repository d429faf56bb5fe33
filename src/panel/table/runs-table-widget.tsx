import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import * as React from 'react';
import { faultSentence } from '../../views/shared/fault-text';
import type { IMegalensRuns, IRunSummary } from '../../tokens';
import type { PanelModel } from '../shell/panel-model';
import { RunsTable } from './runs-table';

/** How often the server is asked while the table can be seen, in milliseconds. */
const ASK_EVERY = 5000;

/** The table of runs in the main area. It shows what the panel's model knows, and asks the server only while it can be seen. */
export class RunsTableWidget extends ReactWidget {
  constructor(
    private readonly _model: PanelModel,
    private readonly _runs: Pick<IMegalensRuns, 'summaries'>
  ) {
    super();
    this.addClass('jp-MegalensRunsTable');
    this._model.changed.connect(this._onModel, this);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      clearTimeout(this._timer);
      this._model.changed.disconnect(this._onModel, this);
      Signal.clearData(this);
      super.dispose();
    }
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this._changed}>
        {() => (
          <>
            {this._fault !== null && (
              <p className="jp-MegalensHint" role="status">
                {this._model.trans.__('Losses and settings could not be read: %1', this._fault)}
              </p>
            )}
            <RunsTable model={this._model} summaries={this._summaries} />
          </>
        )}
      </UseSignal>
    );
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    void this._ask();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    void this._ask();
  }

  private _onModel(): void {
    if (this.isVisible) {
      this._changed.emit();
    }
  }

  private async _ask(): Promise<void> {
    clearTimeout(this._timer);
    if (this.isDisposed || !this.isVisible) {
      return;
    }
    try {
      const [summaries] = await Promise.all([this._runs.summaries(), this._model.runs.refresh()]);
      this._summaries = summaries;
      this._fault = null;
    } catch (error) {
      this._fault = faultSentence(error);
    }
    if (!this.isDisposed) {
      this._changed.emit();
      clearTimeout(this._timer);
      this._timer = setTimeout(() => void this._ask(), ASK_EVERY);
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _summaries: ReadonlyMap<string, IRunSummary> = new Map();
  private _fault: string | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
