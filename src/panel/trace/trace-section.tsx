import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger } from '../../charts/format';
import type { Hello, Peer } from '../../protocol/messages.generated';
import { FlagRow } from './flag-row';
import type { PanelModel } from '../shell/panel-model';
import { Section, PanelButton } from '../shell/section';
import { patchText } from './setting-text';
import type { IForeignChange, TraceModel } from './trace-model';

/** What is traced, one row per flag that the run has. */
export function TraceSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const trace = open?.trace;
  if (trace === undefined || trace.hello === null || trace.rows.length === 0) {
    return null;
  }
  const { rows, foreign, writable } = trace;
  return (
    <Section name="trace" title={trans.__('Trace')}>
      {foreign !== null && <Foreign change={foreign} trace={trace} trans={trans} />}
      <ul className="jp-MegalensFlags">
        {rows.map(row => (
          <FlagRow key={row.info.name} row={row} trace={trace} trans={trans} />
        ))}
      </ul>
      {!writable && (
        <p className="jp-MegalensHint">
          {trans.__('What this run traced. Settings can be changed while it trains.')}
        </p>
      )}
    </Section>
  );
}

function Foreign(props: {
  change: IForeignChange;
  trace: TraceModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { change, trace, trans } = props;
  const who = authorOf(change.by, trans);
  const when = change.time === null ? '' : new Date(change.time * 1000).toLocaleTimeString();
  return (
    <div className="jp-MegalensNotice jp-mod-plain" role="status">
      <p>
        {change.count === 1
          ? trans.__('%1 changed the settings at step %2', who, formatInteger(change.step))
          : trans.__(
              '%1 changed the settings, the last of %2 changes at step %3',
              who,
              formatInteger(change.count),
              formatInteger(change.step)
            )}
        {when !== '' && ` (${when})`}: {changeText(change, trace.hello, trans)}
      </p>
      <PanelButton act={() => trace.dismissForeign()}>{trans.__('Dismiss')}</PanelButton>
    </div>
  );
}

/** Who changed something, as the subject of a sentence: by the program that it came from, and the person where that is known. */
function authorOf(by: Peer | null, trans: TranslationBundle): string {
  switch (by?.name) {
    case 'kernel':
      return by.user === undefined ? trans.__('Your notebook') : trans.__('A notebook of %1', by.user);
    case 'tracer':
      return trans.__('The training script');
    default:
      return by?.user ?? trans.__('Another viewer');
  }
}

/** What differs from before; changes that were taken back leave nothing. */
function changeText({ flags }: IForeignChange, hello: Hello | null, trans: TranslationBundle): string {
  return Object.keys(flags).length === 0
    ? trans.__('everything is as it was before')
    : patchText({ flags: { ...flags } }, trans.__('off'), hello);
}
