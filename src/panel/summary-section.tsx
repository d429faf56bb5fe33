import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatCount, formatInteger, formatNumber } from '../charts/format';
import type { Status } from '../protocol/messages.generated';
import { NoticeBox } from './notice-box';
import type { IOpenRun, PanelModel } from './panel-model';
import { Section } from './section';
import { Sparkline } from './sparkline';

/** Per cent of step time above which the overhead is shown as a warning: the tracer's own promise. */
const OVERHEAD_BUDGET = 1;

/** The chosen run in a few lines. */
export function SummarySection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const notice = model.runNotice;
  if (model.runs.chosenId === null) {
    return null;
  }
  const title = model.runs.chosen?.name ?? open?.source.name ?? trans.__('Run');
  return (
    <Section name="summary" title={title}>
      {notice !== null && <NoticeBox notice={notice} trans={trans} act={action => void model.act(action)} />}
      {open === null && notice === null && <p className="jp-MegalensHint">{trans.__('Opening the run…')}</p>}
      {open !== null && <Figures model={model} open={open} />}
    </Section>
  );
}

function Figures({ model, open }: { model: PanelModel; open: IOpenRun }): React.ReactElement {
  const { trans } = model;
  const { source, summary } = open;
  const status = source.status;
  return (
    <div className="jp-MegalensFigures">
      <p className="jp-MegalensFigures-model">{modelLine(open, trans)}</p>
      {summary.loss !== null && (
        <p className="jp-MegalensFigures-loss">
          <Term
            name={trans.__('loss')}
            value={formatNumber(summary.loss.value, 3)}
            title={summary.loss.unit}
          />
          <button
            type="button"
            className="jp-MegalensSpark"
            title={trans.__('Open the scalars')}
            onClick={() => void model.openView('scalars')}
          >
            <Sparkline
              spark={summary.spark}
              label={trans.__(
                'Loss over steps, now %1. Opens the scalars.',
                formatNumber(summary.loss.value, 3)
              )}
            />
          </button>
          {summary.heldOut !== null && (
            <Term
              name={trans.__('held-out')}
              value={formatNumber(summary.heldOut.value, 3)}
              title={trans.__(
                '%1, measured at step %2',
                summary.heldOut.unit,
                formatInteger(summary.heldOut.step)
              )}
            />
          )}
          {summary.tokensPerSecond !== null && (
            <Term name="" value={trans.__('%1 tok/s', formatCount(summary.tokensPerSecond.value))} />
          )}
        </p>
      )}
      {summary.fault !== null && (
        <p className="jp-MegalensFigures-warning" role="status">
          {trans.__('The scalars could not be read: %1', summary.fault)}
        </p>
      )}
      {status !== null && <Trust status={status} model={model} trans={trans} />}
      {(status?.warnings ?? []).map(warning => (
        <p key={warning} className="jp-MegalensFigures-warning" role="status">
          {warning}
        </p>
      ))}
    </div>
  );
}

/** How far the numbers can be trusted, and what tracing costs. */
function Trust(props: { status: Status; model: PanelModel; trans: TranslationBundle }): React.ReactElement {
  const { status, model, trans } = props;
  const { overhead, probes, dropped, nonfinite, recording } = status;
  const lost = dropped === undefined ? 0 : dropped.producer + dropped.viewer + dropped.recorder;
  return (
    <>
      <p>
        {overhead !== undefined && (
          <Term
            name={trans.__('overhead')}
            value={trans.__(
              '%1 % ± %2',
              overhead.percent.toFixed(1),
              Math.max(0, (overhead.high - overhead.low) / 2).toFixed(1)
            )}
            warn={overhead.low > OVERHEAD_BUDGET}
            title={trans.__(
              'Share of step time that tracing costs, measured by the tracer, with a 95 % interval. Fewer layers, a larger “every” or fewer tiles cost less.'
            )}
          />
        )}
        {probes !== undefined && (
          <Term
            name={trans.__('probes')}
            value={`${formatInteger(probes.fired)}/${formatInteger(probes.expected)}`}
            warn={probes.fired < probes.expected}
            title={
              probes.missing.length > 0
                ? trans.__('Did not fire in the last traced step: %1', probes.missing.join(', '))
                : trans.__('Probes that fired in the last traced step')
            }
          />
        )}
        {status.bytes_per_step !== undefined && status.bytes_per_step > 0 && (
          <Term
            name=""
            value={trans.__('%1/step', formatBytes(status.bytes_per_step))}
            title={trans.__('Measured size of the last frames')}
          />
        )}
      </p>
      {probes !== undefined && probes.missing.length > 0 && (
        <p className="jp-MegalensFigures-warning">
          {trans.__('Did not fire: %1', probes.missing.join(', '))}
        </p>
      )}
      <p>
        {dropped !== undefined && (
          <Term
            name={trans.__('dropped')}
            value={formatInteger(lost)}
            warn={lost > 0}
            title={trans.__(
              'Rows given up: %1 by the tracer, %2 on the way to this page, %3 by the recording',
              formatInteger(dropped.producer),
              formatInteger(dropped.viewer),
              formatInteger(dropped.recorder)
            )}
          />
        )}
        {nonfinite !== undefined && nonfinite.count === 0 && <Term name={trans.__('non-finite')} value="0" />}
        {nonfinite !== undefined && nonfinite.count > 0 && (
          <button
            type="button"
            className="jp-MegalensNonFinite"
            disabled={nonfinite.first === undefined}
            onClick={() => void model.openNonFinite()}
          >
            {trans.__('non-finite %1', formatInteger(nonfinite.count))}
            {nonfinite.first !== undefined &&
              trans.__(
                ', first at step %1, layer %2, %3',
                formatInteger(nonfinite.first.step),
                nonfinite.first.layer,
                nonfinite.first.flag
              )}
          </button>
        )}
        {recording?.state === 'on' && model.open?.trace.writable && (
          <Term name="" value={trans.__('recording')} />
        )}
      </p>
      {recording?.state === 'failed' && (
        <p className="jp-MegalensFigures-warning" role="status">
          {recording.message ?? trans.__('The recording failed; what was written until then can be read.')}
        </p>
      )}
    </>
  );
}

function Term(props: { name: string; value: string; title?: string; warn?: boolean }): React.ReactElement {
  return (
    <span className={`jp-MegalensTerm${props.warn ? ' jp-mod-warn' : ''}`} title={props.title}>
      {props.name !== '' && <span className="jp-MegalensTerm-name">{props.name} </span>}
      <span className="jp-MegalensTerm-value">{props.value}</span>
    </span>
  );
}

function modelLine({ source }: IOpenRun, trans: TranslationBundle): string {
  const { model = null, layout = null } = source.hello ?? {};
  return [
    ...(model === null ? [] : [trans.__('%1 layers', model.layers)]),
    ...(model?.hidden ? [trans.__('%1 hidden', model.hidden)] : []),
    ...(layout === null ? [] : [`TP ${layout.tp} PP ${layout.pp} DP ${layout.dp}`])
  ].join(' · ');
}
