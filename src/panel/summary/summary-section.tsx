import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { runLabel } from '../../client/run-labels';
import { formatCount, formatInteger, formatNumber } from '../../charts/format';
import { NoticeBox } from '../shell/notice-box';
import { OriginChips } from './origin-chips';
import type { IOpenRun } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { layoutText } from './ranks';
import { RanksBox } from './ranks-box';
import { Section } from '../shell/section';
import { Sparkline } from './sparkline';
import { statisticsText } from './statistics-text';
import { Term } from './term';
import { TrainingControls } from './training-controls';
import { TrustLines } from './trust-lines';

/** The chosen run in a few lines. */
export function SummarySection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const notice = model.runNotice;
  if (model.runs.chosenId === null) {
    return null;
  }
  const { chosen } = model.runs;
  const title = chosen === null ? (open?.source.name ?? trans.__('Run')) : runLabel(chosen);
  return (
    <Section name="summary" title={title}>
      {notice !== null && <NoticeBox notice={notice} trans={trans} act={action => void model.act(action)} />}
      {open === null && notice === null && <p className="jp-MegalensHint">{trans.__('Opening the run…')}</p>}
      {open !== null && model.runs.chosen?.kind === 'statistics' && (
        <p className="jp-MegalensHint">
          {trans.__(
            'Statistics from files. The model and its training are not known; Statistics shows what there is.'
          )}
        </p>
      )}
      {open !== null && model.runs.chosen?.kind !== 'statistics' && (
        <>
          <TrainingControls model={model} open={open} />
          <Figures model={model} open={open} />
        </>
      )}
    </Section>
  );
}

function Figures({ model, open }: { model: PanelModel; open: IOpenRun }): React.ReactElement {
  const { trans } = model;
  const { source, summary } = open;
  const status = source.status;
  const logged = statisticsText(source.hello?.statistics, trans);
  return (
    <div className="jp-MegalensFigures">
      <p className="jp-MegalensFigures-model">{modelLine(open, trans)}</p>
      {source.hello?.origin !== undefined && <OriginChips origin={source.hello.origin} trans={trans} />}
      <RanksBox model={model} open={open} />
      {summary.loss !== null && (
        <p className="jp-MegalensFigures-loss">
          <Term
            name={trans.__('loss')}
            value={formatNumber(summary.loss.value, 3)}
            title={summary.loss.unit}
            room={5}
          />
          <button
            type="button"
            className="jp-MegalensSpark"
            title={trans.__('Open the scalars')}
            onClick={() => void model.openScalars()}
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
              room={5}
              title={trans.__(
                '%1, measured at step %2',
                summary.heldOut.unit,
                formatInteger(summary.heldOut.step)
              )}
            />
          )}
          {summary.tokensPerSecond !== null && (
            <Term
              name=""
              value={trans.__('%1 tok/s', formatCount(summary.tokensPerSecond.value))}
              room={10}
            />
          )}
        </p>
      )}
      {logged !== '' && (
        <p className="jp-MegalensFigures-statistics">
          <Term name={trans.__('statistics')} value={logged} />
        </p>
      )}
      {summary.fault !== null && (
        <p className="jp-MegalensFigures-warning" role="status">
          {trans.__('The scalars could not be read: %1', summary.fault)}
        </p>
      )}
      {open.instruments.map((part, at) => (
        <React.Fragment key={at}>{part.render?.()}</React.Fragment>
      ))}
      {status !== null && <TrustLines status={status} model={model} open={open} />}
      {(status?.warnings ?? []).map(warning => (
        <p key={warning} className="jp-MegalensFigures-warning" role="status">
          {warning}
        </p>
      ))}
    </div>
  );
}

function modelLine({ source }: IOpenRun, trans: TranslationBundle): string {
  const { model = null, layout = null } = source.hello ?? {};
  return [
    ...(model === null ? [] : [trans.__('%1 layers', model.layers)]),
    ...(model?.hidden ? [trans.__('%1 hidden', model.hidden)] : []),
    // Several processes have a line of their own.
    ...(layout === null || layout.world_size > 1 ? [] : [layoutText(layout)])
  ].join(' · ');
}
