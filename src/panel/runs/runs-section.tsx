import { listIcon, refreshIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatCount } from '../../charts/format';
import type { IRunEntry } from '../../tokens';
import { own } from '../../protocol/records';
import { NoticeBox, PanelButton, Section } from '../shell/section';
import { alarmsOf } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { CompareBar } from './compare-bar';
import { bytesOf, isDeletable } from './keep-newest';
import { jobOf } from './runs-model';
import { runMark } from './run-mark';
import type { DemoModel } from './demo-model';

/** What the button does, for a terminal. */
const COMMAND = 'python -m megalens.demo';

/** Offers the demo where there is no run yet, and says how it stands once it was started. */
function DemoBox(props: {
  demo: DemoModel;
  /** Whether there is no run yet. */
  empty: boolean;
  trans: TranslationBundle;
}): React.ReactElement | null {
  const { demo, empty, trans } = props;
  const stop = (
    <PanelButton className="jp-MegalensLink" act={() => void demo.stop()}>
      {trans.__('Stop the demo')}
    </PanelButton>
  );
  const start = (
    <PanelButton act={() => void demo.start()}>
      {demo.state.kind === 'failed' ? trans.__('Start the demo again') : trans.__('Start the demo')}
    </PanelButton>
  );
  switch (demo.state.kind) {
    case 'off':
      return empty ? (
        <p className="jp-MegalensHint">
          {trans.__('Nothing to train? Start the demo in a terminal:')} <code>{COMMAND}</code>
        </p>
      ) : null;
    case 'idle':
      return empty ? (
        <div className="jp-MegalensDemo">
          <p>
            {trans.__('Nothing to train? The demo trains a small GPT on this server for about ten minutes:')}{' '}
            <code>{COMMAND}</code>
          </p>
          {start}
        </div>
      ) : null;
    case 'starting':
      return (
        <div className="jp-MegalensNotice jp-mod-busy jp-MegalensDemo" role="status">
          <p>
            <span className="jp-MegalensNotice-busy" aria-hidden="true" />
            {trans.__('The demo is starting. Its run appears here by itself.')}
          </p>
          {stop}
        </div>
      );
    case 'running':
      return (
        <p className="jp-MegalensDemo" role="status">
          {trans.__('The demo is training.')} {stop}
        </p>
      );
    case 'failed':
      return (
        <div className="jp-MegalensNotice jp-mod-error jp-MegalensDemo" role="alert">
          <p>{trans.__('The demo ended with an error. Its last line was:')}</p>
          <pre className="jp-MegalensNotice-code" tabIndex={0}>
            {demo.state.message}
          </pre>
          {start}
        </div>
      );
  }
}

function LeftOut(props: {
  sentences: readonly string[];
  trans: TranslationBundle;
}): React.ReactElement | null {
  const { sentences, trans } = props;
  if (sentences.length === 0) {
    return null;
  }
  return (
    <details className="jp-MegalensRuns-leftOut">
      <summary>{trans.__('Not all run folders could be read')}</summary>
      {sentences.map(sentence => (
        <p key={sentence}>{sentence}</p>
      ))}
    </details>
  );
}

function runTitle(entry: IRunEntry, words: string, trans: TranslationBundle): string {
  return [
    entry.name,
    words,
    trans.__('Started %1', new Date(entry.started * 1000).toLocaleString()),
    ...(entry.bytes === undefined ? [] : [trans.__('Takes %1 on the disk', formatBytes(entry.bytes))]),
    ...(entry.tags?.length ? [trans.__('Tags: %1', entry.tags.join(', '))] : []),
    ...(entry.notes ? [entry.notes] : []),
    trans.__('Ctrl-click marks several to compare; right-click for more')
  ].join('\n');
}

/** The list of runs; arrow keys move the choice, and with Ctrl several are marked. */
export function RunsSection({ model }: { model: PanelModel }): React.ReactElement {
  const { runs, trans } = model;
  const { entries, chosenId } = runs;
  const list = React.useRef<HTMLUListElement>(null);
  const notice = model.listNotice;
  // Where the arrows are, which Ctrl moves without choosing.
  const [at, setStop] = React.useState<string | null>(null);
  React.useEffect(() => setStop(null), [chosenId]);
  const stop = [at, chosenId].find(id => entries.some(entry => entry.id === id)) ?? entries[0]?.id;
  const marked = new Set(runs.marked);
  const recordings = entries.filter(isDeletable);

  const pick = (id: string, { ctrlKey, metaKey }: { ctrlKey: boolean; metaKey: boolean }): void =>
    ctrlKey || metaKey ? runs.toggleMark(id) : runs.choose(id);

  const onKeyDown = (event: React.KeyboardEvent) => {
    const now = entries.findIndex(entry => entry.id === stop);
    const places = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: entries.length - 1 };
    const next = own(places, event.key);
    const entry = next === undefined ? undefined : entries[next];
    if (entry !== undefined) {
      event.preventDefault();
      if (!event.ctrlKey && !event.metaKey) {
        runs.choose(entry.id);
      } else {
        setStop(entry.id);
      }
      list.current?.querySelector<HTMLElement>(`[data-run="${CSS.escape(entry.id)}"]`)?.focus();
    } else if ((event.key === 'Enter' || event.key === ' ') && stop !== undefined) {
      event.preventDefault();
      pick(stop, event);
    }
  };

  return (
    <Section
      name="runs"
      title={trans.__('Runs')}
      tools={
        <>
          <PanelButton
            className="jp-MegalensIconButton"
            title={trans.__('All runs as a table: sort, filter, compare, delete')}
            aria-label={trans.__('All runs as a table')}
            act={() => void model.host.openRuns()}
          >
            <listIcon.react tag="span" />
          </PanelButton>
          <PanelButton
            className="jp-MegalensIconButton"
            title={trans.__('Look for runs now')}
            aria-label={trans.__('Look for runs now')}
            act={() => void runs.refresh()}
          >
            <refreshIcon.react tag="span" />
          </PanelButton>
        </>
      }
    >
      {notice !== null && <NoticeBox notice={notice} trans={trans} act={action => void model.act(action)} />}
      {entries.length > 0 && (
        <ul
          ref={list}
          className="jp-MegalensRuns"
          role="listbox"
          aria-label={trans.__('Training runs')}
          aria-multiselectable
          onKeyDown={onKeyDown}
        >
          {entries.map((entry, at) => {
            // Runs of one job stand below their newest; those of its name are told by when they began.
            const before = entries[at - 1];
            const follows = before !== undefined && jobOf(before) === jobOf(entry);
            const isAgain = follows && entry.apart !== undefined && before?.name === entry.name;
            const open = model.open?.id === entry.id ? model.open : null;
            const mark = runMark(entry, open, trans);
            const alarms = alarmsOf(open);
            return (
              <li
                key={entry.id}
                className={`jp-MegalensRun jp-mod-${mark.kind}${marked.has(entry.id) ? ' jp-mod-marked' : ''}${follows ? ' jp-mod-follows' : ''}`}
                role="option"
                aria-selected={entry.id === chosenId || marked.has(entry.id)}
                aria-current={entry.id === chosenId}
                tabIndex={entry.id === stop ? 0 : -1}
                data-run={entry.id}
                title={runTitle(entry, mark.words, trans)}
                onClick={event => pick(entry.id, event)}
              >
                <span className="jp-MegalensRun-mark" aria-hidden="true">
                  {mark.symbol}
                </span>
                <span className="jp-MegalensRun-name">
                  {isAgain ? (
                    <>
                      <span className="jp-Megalens-unseen">{entry.name} </span>
                      {entry.apart}
                    </>
                  ) : (
                    entry.name
                  )}
                </span>
                <span className="jp-MegalensRun-word">
                  {alarms > 0 && (
                    <span className="jp-MegalensRun-alarms" title={trans._n('%1 alarm', '%1 alarms', alarms)}>
                      {formatCount(alarms)}
                    </span>
                  )}
                  {mark.word}
                </span>
                <span className="jp-MegalensRun-progress">{mark.progress}</span>
                {entry.apart !== undefined && !isAgain && (
                  <span className="jp-MegalensRun-apart">{entry.apart}</span>
                )}
              </li>
            );
          })}
        </ul>
      )}
      <CompareBar model={model} />
      {recordings.length > 1 && (
        <p className="jp-MegalensRuns-disk">
          {trans.__('%1 recordings take %2', recordings.length, formatBytes(bytesOf(recordings)))}{' '}
          <PanelButton className="jp-MegalensLink" act={() => void model.actions.keepNewest()}>
            {trans.__('Keep newest…')}
          </PanelButton>
        </p>
      )}
      <LeftOut sentences={runs.warnings} trans={trans} />
      <DemoBox demo={model.demo} empty={runs.state.kind === 'ready' && entries.length === 0} trans={trans} />
      <PanelButton className="jp-MegalensLink" act={() => void model.actions.connect()}>
        {trans.__('+ Connect to address…')}
      </PanelButton>
      <PanelButton
        className="jp-MegalensLink"
        title={trans.__('Open statistics, traces and logs that another tool wrote')}
        act={() => void model.actions.openStatistics()}
      >
        {trans.__('+ Open files…')}
      </PanelButton>
    </Section>
  );
}
