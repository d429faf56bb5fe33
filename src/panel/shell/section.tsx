import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

/** What a button of the panel is given, beside what every button takes. */
interface IPanelButtonProps extends Omit<React.ComponentPropsWithoutRef<'button'>, 'onClick' | 'type'> {
  /** It does nothing now. It is not disabled: that would let go of the focus that pressed it. */
  readonly idle?: boolean;
  readonly act: () => void;
}

export function PanelButton({ idle, act, ...rest }: IPanelButtonProps): React.ReactElement {
  return (
    <button
      className="jp-MegalensButton"
      {...rest}
      type="button"
      aria-disabled={idle}
      onClick={() => !idle && act()}
    />
  );
}

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

export function Term(props: {
  name: string;
  value: string;
  title?: string;
  /** Characters reserved for the value, so that what follows does not move while the number changes. */
  room?: number;
  warn?: boolean;
}): React.ReactElement {
  return (
    <span className={`jp-MegalensTerm${props.warn ? ' jp-mod-warn' : ''}`} title={props.title}>
      {props.name !== '' && <span className="jp-MegalensTerm-name">{props.name} </span>}
      <span
        className="jp-MegalensTerm-value"
        style={props.room === undefined ? undefined : { minWidth: `${props.room}ch` }}
      >
        {props.value}
      </span>
    </span>
  );
}
