import { refreshIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { DemoBox } from './demo-box';
import { NoticeBox } from '../shell/notice-box';
import type { PanelModel } from '../shell/panel-model';
import { runMark } from './run-mark';
import { Section } from '../shell/section';
import { own } from '../../protocol/own';

/** What the list has no runs of, and why: a line that unfolds. */
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

/** The list of runs; arrow keys move the choice. */
export function RunsSection({ model }: { model: PanelModel }): React.ReactElement {
  const { runs, trans } = model;
  const { entries, chosenId } = runs;
  const list = React.useRef<HTMLUListElement>(null);
  const notice = model.listNotice;
  const stop = chosenId !== null && entries.some(entry => entry.id === chosenId) ? chosenId : entries[0]?.id;

  const onKeyDown = (event: React.KeyboardEvent) => {
    const now = entries.findIndex(entry => entry.id === stop);
    const places = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: entries.length - 1 };
    const next = own(places, event.key);
    const entry = next === undefined ? undefined : entries[next];
    if (entry !== undefined) {
      event.preventDefault();
      runs.choose(entry.id);
      list.current?.querySelector<HTMLElement>(`[data-run="${CSS.escape(entry.id)}"]`)?.focus();
    } else if ((event.key === 'Enter' || event.key === ' ') && stop !== undefined) {
      event.preventDefault();
      runs.choose(stop);
    }
  };

  return (
    <Section
      name="runs"
      title={trans.__('Runs')}
      tools={
        <button
          type="button"
          className="jp-MegalensIconButton"
          title={trans.__('Look for runs now')}
          aria-label={trans.__('Look for runs now')}
          onClick={() => void runs.refresh()}
        >
          <refreshIcon.react tag="span" />
        </button>
      }
    >
      {notice !== null && <NoticeBox notice={notice} trans={trans} act={action => void model.act(action)} />}
      {entries.length > 0 && (
        <ul
          ref={list}
          className="jp-MegalensRuns"
          role="listbox"
          aria-label={trans.__('Training runs')}
          onKeyDown={onKeyDown}
        >
          {entries.map(entry => {
            const mark = runMark(entry, model.open?.id === entry.id ? model.open : null, trans);
            return (
              <li
                key={entry.id}
                className={`jp-MegalensRun jp-mod-${mark.kind}`}
                role="option"
                aria-selected={entry.id === chosenId}
                tabIndex={entry.id === stop ? 0 : -1}
                data-run={entry.id}
                title={trans.__(
                  '%1\nStarted %2\nRight-click for more',
                  entry.name,
                  new Date(entry.started * 1000).toLocaleString()
                )}
                onClick={() => runs.choose(entry.id)}
              >
                <span className="jp-MegalensRun-mark" aria-hidden="true">
                  {mark.symbol}
                </span>
                <span className="jp-MegalensRun-name">{entry.name}</span>
                <span className="jp-MegalensRun-word">{mark.word}</span>
                <span className="jp-MegalensRun-progress">{mark.progress}</span>
              </li>
            );
          })}
        </ul>
      )}
      <LeftOut sentences={runs.warnings} trans={trans} />
      <DemoBox demo={model.demo} empty={runs.state.kind === 'ready' && entries.length === 0} trans={trans} />
      <button type="button" className="jp-MegalensLink" onClick={() => void model.connect()}>
        {trans.__('+ Connect to address…')}
      </button>
      <button
        type="button"
        className="jp-MegalensLink"
        title={trans.__('Read raw-moment JSONL files that another logger wrote')}
        onClick={() => void model.openStatistics()}
      >
        {trans.__('+ Open statistics…')}
      </button>
    </Section>
  );
}
