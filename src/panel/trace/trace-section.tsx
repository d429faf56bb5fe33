import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatInteger } from '../../charts/format';
import { isUnderWay, type ApplyState } from '../shell/apply-state';
import { FlagRow } from './flag-row';
import type { PanelModel } from '../shell/panel-model';
import { Section } from '../shell/section';
import { patchText } from './setting-text';
import type { IForeignChange, TraceModel } from './trace-model';

/** What is traced, one row per flag that the run has. */
export function TraceSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const trace = open?.trace;
  if (trace === undefined || trace.hello === null || trace.rows.length === 0) {
    return null;
  }
  const { rows, foreign, estimate, writable } = trace;
  return (
    <Section name="trace" title={trans.__('Trace')}>
      {foreign !== null && <Foreign change={foreign} trans={trans} dismiss={() => trace.dismissForeign()} />}
      <ul className="jp-MegalensFlags">
        {rows.map(row => (
          <FlagRow key={row.info.name} row={row} trace={trace} trans={trans} />
        ))}
      </ul>
      {writable ? (
        <ApplyBar trace={trace} size={sizeText(estimate, trans)} trans={trans} />
      ) : (
        <p className="jp-MegalensHint">
          {trans.__('What this run traced. Settings can be changed while it trains.')}
        </p>
      )}
    </Section>
  );
}

function sizeText({ bytes, complete }: TraceModel['estimate'], trans: TranslationBundle): string {
  if (complete) {
    return trans.__('≈ %1/step', formatBytes(bytes));
  }
  return bytes > 0 ? trans.__('≥ %1/step', formatBytes(bytes)) : trans.__('size not known yet');
}

function ApplyBar(props: { trace: TraceModel; size: string; trans: TranslationBundle }): React.ReactElement {
  const { trace, size, trans } = props;
  const { apply, dirty } = trace;
  const busy = isUnderWay(apply);
  // A disabled button would let go of the focus that pressed it.
  const idle = !dirty || busy;
  const general = apply.kind === 'refused' && !trace.rows.some(row => row.faults.size > 0);
  return (
    <>
      <div className="jp-MegalensApply">
        <span
          className="jp-MegalensApply-size"
          title={trans.__('Expected size of one step’s frames with these settings, one micro-batch a step')}
        >
          {size}
        </span>
        <button
          type="button"
          className="jp-MegalensButton"
          aria-disabled={idle}
          onClick={() => !idle && trace.revert()}
        >
          {trans.__('Revert')}
        </button>
        <button
          type="button"
          className="jp-MegalensButton jp-mod-accept"
          aria-disabled={idle}
          onClick={() => !idle && void trace.submit()}
        >
          {trans.__('Apply')}
        </button>
      </div>
      <p className={`jp-MegalensApply-state jp-mod-${apply.kind}`} role="status" aria-live="polite">
        {applyText(apply, trans)}
      </p>
      {general && (
        <p className="jp-MegalensField-fault" role="alert">
          {apply.message}
        </p>
      )}
    </>
  );
}

function applyText(apply: ApplyState, trans: TranslationBundle): string {
  switch (apply.kind) {
    case 'idle':
      return '';
    case 'sent':
      return trans.__('Asking the run…');
    case 'accepted':
      return trans.__('Applies at step %1', formatInteger(apply.step));
    case 'applied':
      return trans.__('✓ Applied at step %1', formatInteger(apply.step));
    case 'refused':
      return trans.__('Not applied. Tracing goes on as it was.');
  }
}

function Foreign(props: {
  change: IForeignChange;
  trans: TranslationBundle;
  dismiss: () => void;
}): React.ReactElement {
  const { change, trans } = props;
  const who = change.who === '' ? trans.__('Another viewer') : change.who;
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
        {when !== '' && ` (${when})`}: {changeText(change, trans)}
      </p>
      <button type="button" className="jp-MegalensButton" onClick={props.dismiss}>
        {trans.__('Noted')}
      </button>
    </div>
  );
}

/** What differs from before; changes that were taken back leave nothing. */
function changeText({ flags }: IForeignChange, trans: TranslationBundle): string {
  return Object.keys(flags).length === 0
    ? trans.__('all is as it was before')
    : patchText({ flags: { ...flags } }, trans.__('off'));
}
