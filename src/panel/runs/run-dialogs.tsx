import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes } from '../../charts/format';
import { runLabel } from '../../client/run-reader';
import type { IRunEntry, RunChanges } from '../../tokens';
import { Body } from '../shell/dialogs';
import { Choice, TextField } from '../shell/fields';
import { beyondNewest, bytesOf, isAnnotated } from './keep-newest';

/** How many recordings are kept by default. */
const KEPT = 5;

/** How many of the newest recordings to keep, and by name what is deleted then. */
export function KeepNewestForm(props: {
  runs: readonly IRunEntry[];
  trans: TranslationBundle;
  change: (doomed: readonly IRunEntry[]) => void;
}): React.ReactElement {
  const { runs, trans, change } = props;
  const [keep, setKeep] = React.useState(String(KEPT));
  const [annotated, setAnnotated] = React.useState(false);
  // What is no number of recordings deletes none.
  const beyond = /^[0-9]{1,6}$/.test(keep) ? beyondNewest(runs, Number(keep)) : [];
  const doomed = annotated ? beyond : beyond.filter(run => !isAnnotated(run));
  const spared = beyond.filter(isAnnotated).length;
  React.useEffect(() => {
    change(doomed);
  });
  return (
    <>
      <TextField label={trans.__('Keep the newest')} type="number" min={0} value={keep} change={setKeep} />
      {spared > 0 && (
        <Choice checked={annotated} change={setAnnotated}>
          {trans._n('Also delete one with tags or notes', 'Also delete %1 with tags or notes', spared)}
        </Choice>
      )}
      <p role="status">
        {doomed.length === 0
          ? trans.__('Nothing is deleted.')
          : trans._n(
              'Deletes for good one recording of %2:',
              'Deletes for good %1 recordings of %2:',
              doomed.length,
              formatBytes(bytesOf(doomed))
            )}
      </p>
      <DoomedRuns runs={doomed} />
    </>
  );
}

/** The runs whose recordings are deleted, with what each takes. */
function DoomedRuns({ runs }: { runs: readonly IRunEntry[] }): React.ReactElement | null {
  return runs.length === 0 ? null : (
    <ul className="jp-MegalensDialog-runs">
      {runs.map(run => (
        <li key={run.id}>
          {runLabel(run)} <span>{formatBytes(run.bytes ?? 0)}</span>
        </li>
      ))}
    </ul>
  );
}

/** Ask for notes and tags; null when cancelled. */
export async function askNotes(
  run: IRunEntry,
  trans: TranslationBundle
): Promise<Required<Pick<RunChanges, 'notes' | 'tags'>> | null> {
  let notes = run.notes ?? '';
  let tags = (run.tags ?? []).join(', ');
  const body = new Body(
    <>
      <TextField
        label={trans.__('Tags, with commas between them')}
        maxLength={1100}
        defaultValue={tags}
        change={text => (tags = text)}
      />
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
