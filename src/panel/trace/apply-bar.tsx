import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatInteger, formatNumber } from '../../charts/format';
import { formatDuration } from '../table/table-rows';
import { isUnderWay, type ApplyState } from './draft';
import type { PanelModel } from '../shell/panel-model';
import type { TraceModel } from './trace-model';
import { PanelButton } from '../shell/section';

function sizeText({ estimate, isOfStep }: TraceModel, trans: TranslationBundle): string {
  const { bytes, complete } = estimate;
  if (bytes === 0 && !complete) {
    return trans.__('size not known yet');
  }
  const size = formatBytes(bytes);
  if (isOfStep) {
    return complete ? trans.__('≈ %1/step', size) : trans.__('≥ %1/step', size);
  }
  return complete ? trans.__('≈ %1/micro-batch', size) : trans.__('≥ %1/micro-batch', size);
}

/** For how many steps the recording lasts, and how long where a step's time is known; '' without a bound. */
function heldText({ flood: { held }, pace }: TraceModel, trans: TranslationBundle): string {
  return held === null
    ? ''
    : pace === null
      ? trans.__('The recording holds about %1 such steps.', formatInteger(held))
      : trans.__(
          'The recording holds about %1 such steps, or %2.',
          formatInteger(held),
          formatDuration(held * pace)
        );
}

/** What applying the edited settings costs, and its buttons: at the foot of the panel, always in sight. */
export function ApplyBar({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const trace = open?.trace;
  if (trace === undefined || trace.hello === null || trace.rows.length === 0 || !trace.writable) {
    return null;
  }
  const { apply, dirty, estimate, flood, isOfStep } = trace;
  const size = formatBytes(estimate.bytes);
  const { share } = trace;
  const busy = isUnderWay(apply);
  // A disabled button would let go of the focus that pressed it.
  const idle = !dirty || busy || trace.isWrong;
  const general = apply.kind === 'refused' && !trace.rows.some(row => row.faults.size > 0);
  return (
    <section className="jp-MegalensApplyBar" aria-label={trans.__('Trace settings')}>
      {general && (
        <p className="jp-MegalensField-fault" role="alert">
          {apply.message}
        </p>
      )}
      {flood.isFlood && (
        <p className="jp-MegalensField-fault" role="alert">
          {isOfStep
            ? trans.__('A step sends %1.', size)
            : trans.__('With one micro-batch a step sends %1.', size)}{' '}
          {heldText(trace, trans)} {trans.__('A compressor, fewer layers or every 10th step make it less.')}
        </p>
      )}
      <p className={`jp-MegalensApply-state jp-mod-${apply.kind}`} role="status" aria-live="polite">
        {applyText(apply, trans)}
      </p>
      <div className="jp-MegalensApply">
        <span
          className="jp-MegalensApply-size"
          title={[
            isOfStep
              ? trans.__('Expected size of one step’s frames with these settings')
              : trans.__(
                  'Expected size of a step of one micro-batch with these settings. How many a step has shows once something is traced.'
                ),
            heldText(trace, trans),
            share === undefined
              ? ''
              : trans.__(
                  'With the settings in force tracing takes %1 % of the training’s time.',
                  formatNumber(share, 2)
                )
          ]
            .filter(Boolean)
            .join('\n')}
        >
          {sizeText(trace, trans)}
        </span>
        <PanelButton idle={idle} act={() => trace.revert()}>
          {trans.__('Revert')}
        </PanelButton>
        <PanelButton className="jp-MegalensButton jp-mod-accept" idle={idle} act={() => void trace.submit()}>
          {flood.isFlood ? trans.__('Apply anyway') : trans.__('Apply')}
        </PanelButton>
      </div>
    </section>
  );
}

/** What became of a change of the training that was asked for; `applied` once it is in force. */
export function askedText(asked: ApplyState, trans: TranslationBundle, applied = ''): string {
  switch (asked.kind) {
    case 'idle':
      return '';
    case 'sent':
      return trans.__('Asking the run…');
    case 'accepted':
      return trans.__('Takes effect at step %1', formatInteger(asked.step));
    case 'applied':
      return applied;
    case 'refused':
      return trans.__('Not changed. %1', asked.message);
  }
}

/** What became of a change of what is traced. */
export function applyText(apply: ApplyState, trans: TranslationBundle): string {
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
