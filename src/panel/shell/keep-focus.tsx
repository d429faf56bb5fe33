import * as React from 'react';

/** What a section offers to take the focus over. */
const PLACES = '.jp-MegalensSection-toggle';

interface IHeld {
  readonly node: HTMLElement;
  readonly section: Element | null;
}

/**
 * Keeps the keyboard's place when what had the focus goes away, such as the one button of a notice that was answered.
 *
 * A browser would move the focus to the page itself, and with it the next key away from the panel. Here the heading of the same
 * section takes it, or the panel's first one.
 */
export class KeepFocus extends React.Component<{ children: React.ReactNode; className?: string }> {
  override getSnapshotBeforeUpdate(): IHeld | null {
    const node = document.activeElement;
    return node instanceof HTMLElement && this._root.current?.contains(node)
      ? { node, section: node.closest('section') }
      : null;
  }

  override componentDidUpdate(_props: unknown, _state: unknown, held: IHeld | null): void {
    const root = this._root.current;
    if (held === null || held.node.isConnected || root === null) {
      return;
    }
    // Somebody else may have taken it meanwhile, a dialog for one.
    if (document.activeElement === null || document.activeElement === document.body) {
      const section = held.section?.isConnected ? held.section : root;
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
