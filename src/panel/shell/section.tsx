import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

/** A part of the panel that folds away under its heading. */
export function Section(props: {
  name: string;
  title: string;
  /** Shown at the right of the heading. */
  tools?: React.ReactNode;
  /** Folded away until somebody asks for it. */
  folded?: boolean;
  children: React.ReactNode;
}): React.ReactElement {
  const [open, setOpen] = React.useState(props.folded !== true);
  const body = `jp-Megalens-${props.name}`;
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <section className={`jp-MegalensSection jp-mod-${props.name}`} aria-label={props.title}>
      <div className="jp-MegalensSection-head">
        <h3>
          <button
            type="button"
            className="jp-MegalensSection-toggle"
            aria-expanded={open}
            aria-controls={body}
            onClick={() => setOpen(!open)}
          >
            <Caret.react tag="span" className="jp-MegalensSection-caret" />
            <span className="jp-MegalensSection-title">{props.title}</span>
          </button>
        </h3>
        {props.tools}
      </div>
      <div id={body} className="jp-MegalensSection-body" hidden={!open}>
        {props.children}
      </div>
    </section>
  );
}
