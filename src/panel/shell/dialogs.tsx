import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { ViewOptions } from '../../protocol/views.generated';
import { runLabel } from '../../client/run-reader';
import { toCode } from '../../views/code';
import type { IReportRequest, IRunEntry } from '../../tokens';
import { HubForm, type IHubAddress } from '../runs/hub-form';
import { Choice, TextField } from './fields';

/**
 * A button that asks back under itself before it does what others would notice.
 *
 * The answer that changes nothing has the focus, and a second click on the button itself takes the question
 * back: neither a double click nor a second Enter says yes.
 */
export function Confirm(props: {
  label: React.ReactNode;
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
  aside?: React.ReactNode;
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
        {props.aside}
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

/** Ask for a new name; null when cancelled. */
export async function askName(now: string, trans: TranslationBundle): Promise<string | null> {
  const { button, value } = await InputDialog.getText({
    title: trans.__('Rename run'),
    label: trans.__('Name'),
    text: now,
    okLabel: trans.__('Rename')
  });
  return button.accept ? value : null;
}

/** Ask where files of another tool, or a run on other storage, are; null when cancelled. */
export async function askStatistics(trans: TranslationBundle): Promise<string | null> {
  const { button, value } = await InputDialog.getText({
    title: trans.__('Open files'),
    label: trans.__(
      'Folder or file of another tool: raw moments (training_stats), TrainerMon’s CSV, TensorBoard’s event files, torchtitan’s logs, traces of PyTorch’s profiler or MegatronApp, dumps of the flight recorder. Below the folder in which Jupyter was started. Or the address of a run on other storage, such as s3://bucket/runs/my-run:'
    ),
    placeholder: trans.__('runs/my-run'),
    okLabel: trans.__('Open')
  });
  return button.accept ? value : null;
}

/** Ask where a hub is; null when cancelled. The token is typed as a password and goes to the server only. */
export async function askHub(trans: TranslationBundle): Promise<IHubAddress | null> {
  let answer: IHubAddress | null = null;
  const { button } = await showDialog({
    title: trans.__('Connect to a hub'),
    body: new Body(<HubForm trans={trans} change={now => (answer = now)} />),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Connect') })]
  });
  return button.accept ? answer : null;
}

/** Ask what a report shall hold; null when cancelled or when nothing was chosen. */
export async function askReport(
  run: IRunEntry,
  views: readonly ViewOptions[],
  trans: TranslationBundle
): Promise<IReportRequest | null> {
  const chosen = new Set(views.keys());
  const answer: { format: 'html' | 'ipynb'; title: string } = { format: 'html', title: run.name };
  const formats = [
    ['html', trans.__('Web page (HTML): one file, opens anywhere')],
    ['ipynb', trans.__('Notebook: the views’ own code with pictures')]
  ] as const;
  const body = new Body(
    <>
      <TextField
        label={trans.__('Title')}
        maxLength={200}
        defaultValue={answer.title}
        change={text => (answer.title = text)}
      />
      <fieldset>
        <legend>{trans.__('Views')}</legend>
        {views.map((view, i) => (
          <Choice key={i} defaultChecked change={checked => (checked ? chosen.add(i) : chosen.delete(i))}>
            <code>{toCode(view)}</code>
          </Choice>
        ))}
      </fieldset>
      <fieldset>
        <legend>{trans.__('Format')}</legend>
        {formats.map(([format, label]) => (
          <Choice
            key={format}
            type="radio"
            name="jp-Megalens-format"
            defaultChecked={format === answer.format}
            change={() => (answer.format = format)}
          >
            {label}
          </Choice>
        ))}
      </fieldset>
    </>
  );
  const { button } = await showDialog({
    title: trans.__('Export a report of %1', runLabel(run)),
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Export') })]
  });
  const retained = views.filter((_, i) => chosen.has(i));
  if (!button.accept || retained.length === 0) {
    return null;
  }
  return { format: answer.format, views: retained, title: answer.title.trim() || run.name };
}

export class Body extends ReactWidget {
  constructor(private readonly content: React.ReactElement) {
    super();
    this.addClass('jp-MegalensDialog');
  }

  protected override render(): React.ReactElement {
    return this.content;
  }
}
