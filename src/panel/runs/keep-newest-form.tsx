import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes } from '../../charts/format';
import { runLabel } from '../../client/run-labels';
import type { IRunEntry } from '../../tokens';
import { beyondNewest, bytesOf, isAnnotated } from './keep-newest';

/** How many recordings are kept unless somebody says otherwise. */
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
      <label>
        {trans.__('Keep the newest')}
        <input
          className="jp-mod-styled"
          type="number"
          min={0}
          value={keep}
          onChange={event => setKeep(event.target.value)}
        />
      </label>
      {spared > 0 && (
        <label className="jp-mod-choice">
          <input type="checkbox" checked={annotated} onChange={event => setAnnotated(event.target.checked)} />
          {trans._n('Also delete one with tags or notes', 'Also delete %1 with tags or notes', spared)}
        </label>
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
export function DoomedRuns({ runs }: { runs: readonly IRunEntry[] }): React.ReactElement | null {
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
