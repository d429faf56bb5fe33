import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatBytes, formatInteger } from '../../charts/format';
import type { SilentProbes, Status } from '../../protocol/messages.generated';
import { CostBox, CostTerm } from './cost-box';
import type { IOpenRun } from '../shell/open-run';
import type { PanelModel } from '../shell/panel-model';
import { Term } from './term';
import { flagWords } from '../../views/shared/describe';
import { layerWords } from '../../views/shared/layers';

/** What a recording takes, and what it may. */
function sizeText(
  { bytes, limit_bytes: limit }: NonNullable<Status['recording']>,
  trans: TranslationBundle
): string {
  const size = bytes === undefined ? '' : formatBytes(bytes);
  return limit === undefined ? size : trans.__('%1 of %2', size, formatBytes(limit));
}

/** Probes that did not fire, by reason; of a tracer that gives none, without. */
function silentProbes({ probes }: Status): readonly SilentProbes[] {
  const groups = probes?.reasons ?? [{ reason: '', missing: probes?.missing ?? [] }];
  return groups.filter(({ missing }) => missing.length > 0);
}

/** How far the numbers can be trusted, and what tracing costs. */
export function TrustLines(props: { status: Status; model: PanelModel; open: IOpenRun }): React.ReactElement {
  const { status, model, open } = props;
  const { trans } = model;
  const { probes, compiled, dropped, nonfinite, recording } = status;
  const lost = dropped === undefined ? 0 : dropped.producer + dropped.viewer + dropped.recorder;
  return (
    <>
      <p>
        <CostTerm open={open} trans={trans} />
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
            room={11}
            title={trans.__('Measured size of the last frames')}
          />
        )}
      </p>
      <CostBox open={open} trans={trans} />
      {silentProbes(status).map(({ missing, reason }) => (
        <p key={reason} className="jp-MegalensFigures-warning">
          {reason === ''
            ? trans.__('Did not fire: %1', missing.join(', '))
            : trans.__('Did not fire: %1 (%2)', missing.join(', '), reason)}
        </p>
      ))}
      <p>
        {compiled !== undefined && (
          <Term
            name={trans.__('compiled again')}
            value={formatInteger(compiled.again)}
            title={trans.__(
              'Code with probes was compiled %1 times since tracing began, %2 of these because its inputs were of another kind. A change of what is traced has nothing compiled.',
              formatInteger(compiled.times),
              formatInteger(compiled.again)
            )}
          />
        )}
        {dropped !== undefined && (
          <Term
            name={trans.__('dropped')}
            value={formatInteger(lost)}
            warn={lost > 0}
            title={trans.__(
              'Rows dropped: %1 by the tracer, %2 on the way to this page, %3 by the recording',
              formatInteger(dropped.producer),
              formatInteger(dropped.viewer),
              formatInteger(dropped.recorder)
            )}
          />
        )}
        {nonfinite !== undefined && nonfinite.count === 0 && nonfinite.moments === undefined && (
          <Term name={trans.__('non-finite')} value="0" />
        )}
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
                ', first at step %1, %2, %3',
                formatInteger(nonfinite.first.step),
                layerWords([nonfinite.first.layer]),
                flagWords(open.source.hello, nonfinite.first.flag, null, text => text)
              )}
          </button>
        )}
        {nonfinite?.moments !== undefined && (
          <button
            type="button"
            className="jp-MegalensNonFinite"
            onClick={() => void model.openNonFinite('moments')}
          >
            {trans.__(
              'non-finite in statistics %1, first at step %2, %3',
              formatInteger(nonfinite.moments.count),
              formatInteger(nonfinite.moments.first.step),
              nonfinite.moments.first.name
            )}
          </button>
        )}
        {recording?.state === 'on' && open.trace.writable && (
          <Term
            name={trans.__('recording')}
            value={sizeText(recording, trans)}
            room={7}
            title={
              recording.message ??
              (recording.limit_bytes === undefined
                ? trans.__('What the recording takes on the disk; it is not bounded')
                : trans.__(
                    'What the recording takes on the disk, and what it may: then its oldest steps are given up'
                  ))
            }
          />
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
