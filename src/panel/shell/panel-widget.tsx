import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';
import { FaultBoundary } from './fault-boundary';
import { KeepFocus } from './keep-focus';
import type { PanelModel } from './panel-model';
import { PerturbBanner } from '../perturb/perturb-banner';
import { PerturbSection } from '../perturb/perturb-section';
import { RunsSection } from '../runs/runs-section';
import { SummarySection } from '../summary/summary-section';
import { ApplyBar } from '../trace/apply-bar';
import { InstrumentsSection } from '../trace/instruments-section';
import { TraceSection } from '../trace/trace-section';
import { ViewsSection } from '../views/views-section';

/** One part of the panel, with what a reset of it drops. */
interface IPart {
  readonly name: string;
  readonly title: string;
  readonly Part: (props: { model: PanelModel }) => React.ReactElement | null;
  readonly reset: () => void;
  /** Whether it is about the chosen run, and so begins anew with another one. */
  readonly ofRun: boolean;
}

/** Whether the panel's frame shows a perturbation. Where that cannot be told the banner says so; the frame must stand. */
function isArmed(model: PanelModel): boolean {
  try {
    return (model.open?.perturb.armed ?? null) !== null;
  } catch {
    return false;
  }
}

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
          <KeepFocus className={isArmed(model) ? 'jp-mod-perturbed' : undefined}>
            {this._parts().map(({ name, title, Part, reset, ofRun }) => (
              <FaultBoundary
                key={ofRun ? `${name}-${model.runs.chosenId}` : name}
                name={name}
                title={title}
                trans={model.trans}
                reset={reset}
                copy={text => model.host.copy(text)}
              >
                <Part model={model} />
              </FaultBoundary>
            ))}
          </KeepFocus>
        )}
      </UseSignal>
    );
  }

  /** What the panel consists of, from top to bottom, and what a reset of each drops. */
  private _parts(): readonly IPart[] {
    const { model } = this;
    const { trans } = model;
    // A run that is opened anew has new models: nothing of the old ones is left.
    const revert = (): void => model.open?.trace.revert();
    const reopen = (): void => void model.act('reopen');
    return [
      {
        name: 'banner',
        title: trans.__('Perturbation'),
        Part: PerturbBanner,
        reset: reopen,
        ofRun: true
      },
      {
        name: 'runs',
        title: trans.__('Runs'),
        Part: RunsSection,
        reset: () => model.runs.choose(null),
        ofRun: false
      },
      { name: 'summary', title: trans.__('Run'), Part: SummarySection, reset: reopen, ofRun: true },
      { name: 'views', title: trans.__('Views'), Part: ViewsSection, reset: () => undefined, ofRun: true },
      {
        name: 'trace',
        title: trans.__('Trace'),
        Part: TraceSection,
        reset: () => {
          model.open?.trace.dismissForeign();
          revert();
        },
        ofRun: true
      },
      {
        name: 'instruments',
        title: trans.__('Statistics'),
        Part: InstrumentsSection,
        reset: () => undefined,
        ofRun: true
      },
      {
        name: 'perturb',
        title: trans.__('Perturb'),
        Part: PerturbSection,
        reset: () => model.open?.perturb.revert(),
        ofRun: true
      },
      { name: 'apply', title: trans.__('Trace settings'), Part: ApplyBar, reset: revert, ofRun: true }
    ];
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
