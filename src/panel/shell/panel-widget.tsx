import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';
import { viewInfos } from '../../protocol/view-info';
import type { IViewInfo, ViewGroup } from '../../protocol/view-descriptor';
import { faultSentence, faultText } from '../../views/shared/fault-text';
import { PerturbBanner, PerturbSection } from '../perturb/perturb-section';
import { RunsSection } from '../runs/runs-section';
import { SummarySection } from '../summary/summary-section';
import { ApplyBar } from '../trace/apply-bar';
import { InstrumentsSection } from '../trace/instruments-section';
import { TraceSection } from '../trace/trace-section';
import { viewIcon } from './commands';
import { hasRows } from './open-run';
import { PanelButton, Section } from './section';
import { PanelModel } from './panel-model';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { IStateDB } from '@jupyterlab/statedb';
import type { CommandRegistry } from '@lumino/commands';
import { isRunId } from '../../client/runs-api';
import type { IMegalensRuns, IMegalensViews } from '../../tokens';
import { createPanelHost } from './panel-host';
import { loadPanelParts } from './panel-part';

interface IProps {
  name: string;
  title: string;
  trans: TranslationBundle;
  /** Drop what the section keeps: edits, choices. It is drawn anew afterwards. */
  reset: () => void;
  copy: (text: string) => void;
  children: React.ReactNode;
}

interface IState {
  fault: { readonly error: unknown } | null;
  where: string;
}

/**
 * Holds back whatever a section throws while it is drawn: the section says so in its place, and all others
 * stay as they are.
 *
 * Without it React would take down the whole panel, at every drawing anew.
 */
class FaultBoundary extends React.Component<IProps, IState> {
  static getDerivedStateFromError(error: unknown): Pick<IState, 'fault'> {
    return { fault: { error } };
  }

  override state: IState = { fault: null, where: '' };

  override componentDidCatch(_: unknown, info: React.ErrorInfo): void {
    this.setState({ where: info.componentStack ?? '' });
  }

  override render(): React.ReactNode {
    const { name, title, trans, copy, children } = this.props;
    const { fault, where } = this.state;
    if (fault === null) {
      return children;
    }
    return (
      <section className={`jp-MegalensSection jp-mod-${name} jp-mod-fault`} aria-label={title}>
        <div className="jp-MegalensNotice jp-mod-error" role="alert">
          <p>
            {trans.__(
              '“%1” could not be shown. Training and the rest of the panel are not affected. Reset drops what was set here and tries again.',
              title
            )}
          </p>
          <details>
            <summary>{trans.__('What went wrong')}</summary>
            <p>{faultSentence(fault.error)}</p>
          </details>
          <PanelButton act={this._reset}>{trans.__('Reset')}</PanelButton>{' '}
          <PanelButton act={() => copy(faultText(`section ${name}`, fault.error, where))}>
            {trans.__('Copy details')}
          </PanelButton>
        </div>
      </section>
    );
  }

  private _reset = (): void => {
    this.props.reset();
    this.setState({ fault: null, where: '' });
  };
}

/** What a section offers to take the focus over. */
const PLACES = '.jp-MegalensSection-toggle';

interface IHeld {
  readonly node: HTMLElement;
  readonly section: Element | null;
}

/**
 * Keeps the keyboard's place when what had the focus goes away, such as the one button of a notice that was
 * answered.
 *
 * A browser would move the focus to the page itself, and with it the next key away from the panel. Here the
 * heading of the same section takes it, or the panel's first one.
 */
class KeepFocus extends React.Component<{ children: React.ReactNode; className?: string }> {
  override getSnapshotBeforeUpdate(): IHeld | null {
    const node = document.activeElement;
    return node instanceof HTMLElement && this._root.current?.contains(node)
      ? { node, section: node.closest('section') }
      : null;
  }

  override componentDidUpdate(_props: unknown, _state: unknown, focused: IHeld | null): void {
    const root = this._root.current;
    if (focused === null || focused.node.isConnected || root === null) {
      return;
    }
    // Somebody else may have taken it meanwhile, a dialog for one.
    if (document.activeElement === null || document.activeElement === document.body) {
      const section = focused.section?.isConnected ? focused.section : root;
      section.querySelector<HTMLElement>(PLACES)?.focus();
    }
  }

  override render(): React.ReactElement {
    return (
      <div ref={this._root} className={`jp-MegalensPanel-content ${this.props.className ?? ''}`}>
        {this.props.children}
      </div>
    );
  }

  private readonly _root = React.createRef<HTMLDivElement>();
}

/** One part of the panel, with what a reset of it drops. */
interface IPart {
  readonly name: string;
  readonly title: string;
  readonly Part: (props: { model: PanelModel }) => React.ReactElement | null;
  readonly reset: () => void;
  /** Whether it is about the chosen run, and so begins anew with another one. */
  readonly ofRun: boolean;
}

/** Whether the panel's frame shows a perturbation. On errors false; the banner reports them. */
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

/** Opens views as tabs, and takes what they show elsewhere. */
function ViewsSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  if (open === null || open.source.hello === null) {
    return null;
  }
  const views = viewInfos().filter(({ offer }) => offer.includes('panel'));
  // Why a view would be empty now, or null.
  const lacking = ({ needs: { streams, absent } }: IViewInfo): string | null => {
    if (model.runs.chosen?.kind === 'statistics') {
      return streams.includes('moments') ? null : trans.__('These files hold statistics only');
    }
    return streams.every(stream => hasRows(open, stream))
      ? null
      : trans.__(absent ?? 'This run has no rows of it');
  };
  return (
    <Section name="views" title={trans.__('Views')}>
      {groupsOf(views, trans).map(([title, group]) => (
        <div key={title} className="jp-MegalensViews jp-mod-group" role="group" aria-label={title}>
          <span className="jp-MegalensViews-group">
            <GroupIcon info={group[0]} /> {title}
          </span>
          {group.map(info => (
            <PanelButton
              key={info.name}
              data-view={info.name}
              title={
                lacking(info) ??
                trans.__('%1. Click for a tab, or drag into a notebook', trans.__(info.summary))
              }
              act={() => void model.openView(info.name)}
            >
              {trans.__(info.title)}
            </PanelButton>
          ))}
        </div>
      ))}
      <div className="jp-MegalensViews jp-mod-group" role="group" aria-label={trans.__('Side by side')}>
        <span className="jp-MegalensViews-group">{trans.__('Side by side')}</span>
        <PanelButton
          title={trans.__('Loss, statistics and alarms side by side')}
          act={() => void model.arrange('training')}
        >
          {trans.__('Watch a training')}
        </PanelButton>
        <PanelButton
          title={trans.__('A text, its attention and its logit lens side by side')}
          act={() => void model.arrange('text')}
        >
          {trans.__('Look into a text')}
        </PanelButton>
      </div>
      <div className="jp-MegalensViews">
        <PanelButton act={() => void model.exportReport()}>{trans.__('Export report…')}</PanelButton>
        <PanelButton
          title={trans.__('Python that does in a cell what is shown here')}
          act={() => model.copyCode()}
        >
          {trans.__('Copy as code')}
        </PanelButton>
      </div>
    </Section>
  );
}

function GroupIcon({ info }: { info: IViewInfo | undefined }): React.ReactElement {
  const icon = viewIcon(info ?? {});
  return <icon.react tag="span" aria-hidden="true" />;
}

/** Views under the words of what they are about, in the order of their first; what has no word comes last. */
function groupsOf(
  views: readonly IViewInfo[],
  trans: TranslationBundle
): readonly (readonly [title: string, views: readonly IViewInfo[]])[] {
  const words: Readonly<Record<ViewGroup, string>> = {
    run: trans.__('Run'),
    tensors: trans.__('Tensors'),
    statistics: trans.__('Numbers'),
    alarms: trans.__('Health'),
    time: trans.__('Time'),
    text: trans.__('Text'),
    plans: trans.__('Plans')
  };
  const groups = new Map<string, IViewInfo[]>();
  const others: IViewInfo[] = [];
  for (const info of views) {
    const title = info.group && words[info.group];
    const group = title === undefined ? others : (groups.get(title) ?? []);
    group.push(info);
    if (title !== undefined) {
      groups.set(title, group);
    }
  }
  return [...groups, ...(others.length > 0 ? [[trans.__('More'), others] as const] : [])];
}

const CHOICE = 'megalens:chosen-run';

export interface ICreatePanelOptions {
  commands: CommandRegistry;
  runs: IMegalensRuns;
  views: IMegalensViews;
  trans: TranslationBundle;
  /** Where the choice is kept over a reload. */
  state: IStateDB | null;
  settings: ISettingRegistry.ISettings | null;
}

/** Make the panel with what was chosen before the reload. */
export async function createPanel(options: ICreatePanelOptions): Promise<MegalensPanel> {
  const { commands, runs, views, trans, state, settings } = options;
  const remember = (run: string | null) => void state?.save(CHOICE, run);
  const model = new PanelModel(
    runs,
    createPanelHost({ commands, views, trans, remember }),
    trans,
    undefined,
    await loadPanelParts()
  );
  model.setting = name => settings?.get(name).composite;
  const read = () => {
    model.runs.options = {
      chooseNewest: settings?.get('chooseNewest').composite !== false,
      refreshEvery: Number(settings?.get('refreshSeconds').composite ?? 2) * 1000
    };
  };
  read();
  settings?.changed.connect(read);
  // What cannot be read is dropped: a panel without its last choice is better than none.
  const kept = await state?.fetch(CHOICE).catch(() => '');
  if (isRunId(kept)) {
    model.runs.restore(kept);
  } else if (kept !== undefined && kept !== null) {
    void state?.remove(CHOICE);
    model.host.warn(
      trans.__('The run that was chosen last could not be read from the saved state, and was forgotten.')
    );
  }
  return new MegalensPanel(model);
}
