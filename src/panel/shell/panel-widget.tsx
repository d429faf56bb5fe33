import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';
import { KeepFocus } from './keep-focus';
import type { PanelModel } from './panel-model';
import { PerturbBanner } from '../perturb/perturb-banner';
import { PerturbSection } from '../perturb/perturb-section';
import { RunsSection } from '../runs/runs-section';
import { SummarySection } from '../summary/summary-section';
import { TraceSection } from '../trace/trace-section';
import { ViewsSection } from '../views/views-section';

/** The sidebar panel. It asks the server only while it can be seen. */
export class MegalensPanel extends ReactWidget {
  constructor(readonly model: PanelModel) {
    super();
    this.addClass('jp-MegalensPanel');
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override render(): React.ReactElement {
    const { model } = this;
    return (
      <UseSignal signal={model.changed} shouldUpdate={() => this.isVisible}>
        {() => (
          <KeepFocus className={model.open?.perturb.armed ? 'jp-mod-perturbed' : undefined}>
            <PerturbBanner model={model} />
            <RunsSection model={model} />
            <SummarySection key={`summary-${model.runs.chosenId}`} model={model} />
            <TraceSection key={`trace-${model.runs.chosenId}`} model={model} />
            <PerturbSection key={`perturb-${model.runs.chosenId}`} model={model} />
            <ViewsSection key={`views-${model.runs.chosenId}`} model={model} />
          </KeepFocus>
        )}
      </UseSignal>
    );
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.model.visible = this.isVisible;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.visible = true;
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.model.visible = false;
  }
}
