import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { INotice, NoticeAction } from './notice';

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

/** One row of the table of numbers: its name, and its value where all values begin. */
export function Term(props: {
  name: string;
  value: string;
  title?: string;
  warn?: boolean;
  className?: string;
  /** Shown after the value. */
  children?: React.ReactNode;
}): React.ReactElement {
  const { name, value, title, warn, className = '', children } = props;
  return (
    <div className={`jp-MegalensTerm${warn ? ' jp-mod-warn' : ''} ${className}`} title={title}>
      <span className="jp-MegalensTerm-name">{name} </span>
      <span className="jp-MegalensTerm-value">{value}</span>
      {children}
    </div>
  );
}

/** A state in one sentence with one action. */
export function NoticeBox(props: {
  notice: INotice;
  trans: TranslationBundle;
  act: (action: NoticeAction) => void;
}): React.ReactElement {
  const { tone, sentence, detail, code, action } = props.notice;
  // Seconds and steps that count on are read by those who look, and said once.
  const words = sentence.replace(/[\d.\s]+/g, ' ');
  const spoken = React.useRef('');
  const counts = spoken.current === words;
  React.useEffect(() => {
    spoken.current = words;
  }, [words]);
  return (
    <div
      className={`jp-MegalensNotice jp-mod-${tone}`}
      role={tone === 'error' ? 'alert' : 'status'}
      aria-live={counts ? 'off' : undefined}
    >
      <p>
        {tone === 'busy' && <span className="jp-MegalensNotice-busy" aria-hidden="true" />}
        {sentence}
      </p>
      {code !== undefined && (
        <pre className="jp-MegalensNotice-code" tabIndex={0}>
          {code}
        </pre>
      )}
      {detail !== undefined && detail !== '' && (
        <details>
          <summary>{props.trans.__('What the server said')}</summary>
          <p>{detail}</p>
        </details>
      )}
      {action !== null && <PanelButton act={() => props.act(action.id)}>{action.label}</PanelButton>}
    </div>
  );
}
