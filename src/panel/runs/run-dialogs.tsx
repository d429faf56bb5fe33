import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes } from '../../charts/format';
import { runLabel } from '../../client/run-labels';
import type { IRunEntry, RunChanges } from '../../tokens';
import { Body } from '../shell/dialogs';
import { bytesOf } from './keep-newest';
import { DoomedRuns, KeepNewestForm } from './keep-newest-form';

/** Ask for notes and tags; null when cancelled. */
export async function askNotes(
  run: IRunEntry,
  trans: TranslationBundle
): Promise<Required<Pick<RunChanges, 'notes' | 'tags'>> | null> {
  let notes = run.notes ?? '';
  let tags = (run.tags ?? []).join(', ');
  const body = new Body(
    <>
      <label>
        {trans.__('Tags, with commas between them')}
        <input
          className="jp-mod-styled"
          type="text"
          maxLength={1100}
          defaultValue={tags}
          onChange={event => (tags = event.target.value)}
        />
      </label>
      <label>
        {trans.__('Notes')}
        <textarea
          className="jp-mod-styled"
          rows={8}
          maxLength={10_000}
          defaultValue={notes}
          onChange={event => (notes = event.target.value)}
        />
      </label>
      <p>{trans.__('They are kept in the run’s folder, beside the recording.')}</p>
    </>
  );
  const { button } = await showDialog({
    title: trans.__('Notes and tags of %1', runLabel(run)),
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Save') })]
  });
  return button.accept ? { notes, tags: tagsOf(tags) } : null;
}

/** The tags of a text with commas, each once. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.split(',').map(tag => tag.trim()))].filter(tag => tag !== '');
}

/** Ask whether recordings shall be deleted. */
export async function askDelete(runs: readonly IRunEntry[], trans: TranslationBundle): Promise<boolean> {
  const { button } = await showDialog({
    title: trans._n('Delete a recording?', 'Delete %1 recordings?', runs.length),
    body: new Body(
      <>
        <DoomedRuns runs={runs} />
        <p>
          {trans.__(
            '%1 of recorded rows, notes and tags are deleted for good. Whatever else lies in the folders stays.',
            formatBytes(bytesOf(runs))
          )}
        </p>
      </>
    ),
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Delete') })],
    defaultButton: 0
  });
  return button.accept;
}

/** Ask how many of the newest recordings to keep. Returns those to delete, none when cancelled. */
export async function askKeepNewest(
  runs: readonly IRunEntry[],
  trans: TranslationBundle
): Promise<readonly IRunEntry[]> {
  let doomed: readonly IRunEntry[] = [];
  const { button } = await showDialog({
    title: trans.__('Keep the newest recordings'),
    body: new Body(<KeepNewestForm runs={runs} trans={trans} change={now => (doomed = now)} />),
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Delete the rest') })],
    defaultButton: 0
  });
  return button.accept ? doomed : [];
}
