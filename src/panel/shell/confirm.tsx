import * as React from 'react';

/**
 * A button that asks back under itself before it does what others would notice.
 *
 * The answer that changes nothing has the focus, and a second click on the button itself takes the question back: neither a
 * double click nor a second Enter says yes.
 */
export function Confirm(props: {
  label: React.ReactNode;
  /** What would happen, in a sentence or two. */
  question: string;
  yes: string;
  no: string;
  /** Answered at once, without a question. */
  plain?: boolean;
  disabled?: boolean;
  /** Makes a checkbox of the button. */
  checked?: boolean;
  title?: string;
  className?: string;
  /** What stands beside the button. */
  beside?: React.ReactNode;
  act: () => void;
}): React.ReactElement {
  const { label, question, yes, no, plain = false, disabled = false, act } = props;
  const [asking, setAsking] = React.useState(false);
  const opener = React.useRef<HTMLButtonElement>(null);
  const safe = React.useRef<HTMLButtonElement>(null);
  const open = asking && !plain && !disabled;
  const id = React.useId();
  React.useEffect(() => {
    if (open) {
      safe.current?.focus();
    }
  }, [open]);
  const close = () => {
    setAsking(false);
    opener.current?.focus();
  };
  return (
    <>
      <div className="jp-MegalensControls-line">
        <button
          ref={opener}
          type="button"
          className={`jp-MegalensButton ${props.className ?? ''}`}
          role={props.checked === undefined ? undefined : 'checkbox'}
          aria-checked={props.checked}
          title={props.title}
          aria-disabled={disabled}
          aria-expanded={plain ? undefined : open}
          onClick={() => {
            if (disabled) {
              return;
            }
            if (plain) {
              act();
            } else {
              setAsking(!asking);
            }
          }}
        >
          {label}
        </button>
        {props.beside}
      </div>
      {open && (
        <div
          className="jp-MegalensNotice jp-mod-warning jp-MegalensConfirm"
          role="group"
          aria-labelledby={id}
          onKeyDown={event => {
            if (event.key === 'Escape') {
              event.stopPropagation();
              close();
            }
          }}
        >
          <p id={id}>{question}</p>
          <button ref={safe} type="button" className="jp-MegalensButton" onClick={close}>
            {no}
          </button>{' '}
          <button
            type="button"
            className="jp-MegalensButton jp-mod-warn"
            onClick={() => {
              close();
              act();
            }}
          >
            {yes}
          </button>
        </div>
      )}
    </>
  );
}
