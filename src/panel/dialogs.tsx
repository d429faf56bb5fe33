import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Dialect } from '../client/runs-api';
import type { ViewOptions } from '../protocol/views.generated';
import { toCode } from '../views/code';
import type { IReportRequest, IRunEntry } from '../tokens';
import { DIALECTS } from './dialects';

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

/** Where a hub is, and what it speaks. */
export interface IHubAddress {
  address: string;
  token: string;
  dialect: Dialect;
}

/** Ask where a hub is; null when cancelled. The token is typed as a password and goes to the server only. */
export async function askHub(trans: TranslationBundle): Promise<IHubAddress | null> {
  const answer: IHubAddress = { address: 'ws://127.0.0.1:', token: '', dialect: 'megalens' };
  const body = new Body(
    <>
      <p>
        {trans.__(
          'The Jupyter server makes the connection; the administrator must have allowed the address. The token of a Megalens hub is in its runtime file; the others have none.'
        )}
      </p>
      <label>
        {trans.__('Speaks')}
        <select
          className="jp-mod-styled"
          defaultValue={answer.dialect}
          onChange={event => (answer.dialect = DIALECTS[event.target.selectedIndex]?.id ?? 'megalens')}
        >
          {DIALECTS.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        {trans.__('Address')}
        <input
          className="jp-mod-styled"
          type="text"
          spellCheck={false}
          defaultValue={answer.address}
          placeholder="ws://host:port"
          onChange={event => (answer.address = event.target.value)}
        />
      </label>
      <label>
        {trans.__('Token')}
        <input
          className="jp-mod-styled"
          type="password"
          autoComplete="off"
          onChange={event => (answer.token = event.target.value)}
        />
      </label>
    </>
  );
  const { button } = await showDialog({
    title: trans.__('Connect to a hub'),
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Connect') })]
  });
  return button.accept ? { ...answer, address: answer.address.trim(), token: answer.token.trim() } : null;
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
      <label>
        {trans.__('Title')}
        <input
          className="jp-mod-styled"
          type="text"
          maxLength={200}
          defaultValue={answer.title}
          onChange={event => (answer.title = event.target.value)}
        />
      </label>
      <fieldset>
        <legend>{trans.__('Views')}</legend>
        {views.map((view, i) => (
          <label key={i} className="jp-mod-choice">
            <input
              type="checkbox"
              defaultChecked
              onChange={event => (event.target.checked ? chosen.add(i) : chosen.delete(i))}
            />
            <code>{toCode(view)}</code>
          </label>
        ))}
      </fieldset>
      <fieldset>
        <legend>{trans.__('Format')}</legend>
        {formats.map(([format, label]) => (
          <label key={format} className="jp-mod-choice">
            <input
              type="radio"
              name="jp-Megalens-format"
              defaultChecked={format === answer.format}
              onChange={() => (answer.format = format)}
            />
            {label}
          </label>
        ))}
      </fieldset>
    </>
  );
  const { button } = await showDialog({
    title: trans.__('Export a report of %1', run.name),
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Export') })]
  });
  const kept = views.filter((_, i) => chosen.has(i));
  if (!button.accept || kept.length === 0) {
    return null;
  }
  return { format: answer.format, views: kept, title: answer.title.trim() || run.name };
}

class Body extends ReactWidget {
  constructor(private readonly content: React.ReactElement) {
    super();
    this.addClass('jp-MegalensDialog');
  }

  protected override render(): React.ReactElement {
    return this.content;
  }
}
