import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { faultSentence, faultText } from '../../views/shared/fault-text';
import { PanelButton } from './panel-button';

interface IProps {
  /** The section's name, as in its class. */
  name: string;
  /** What the section is called. */
  title: string;
  trans: TranslationBundle;
  /** Drop what the section keeps: edits, choices. It is drawn anew afterwards. */
  reset: () => void;
  copy: (text: string) => void;
  children: React.ReactNode;
}

interface IState {
  fault: { readonly error: unknown } | null;
  /** React's stack of components. */
  where: string;
}

/**
 * Holds back whatever a section throws while it is drawn: the section says so in its place, and all others stay as they are.
 *
 * Without it React would take down the whole panel, at every drawing anew.
 */
export class FaultBoundary extends React.Component<IProps, IState> {
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
