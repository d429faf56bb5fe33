import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { Origin } from '../../protocol/messages.generated';
import { DIALECTS } from '../runs/dialects';

/** Says where rows come from when no tracer of ours sends them. */
export function OriginChips(props: { origin: Origin; trans: TranslationBundle }): React.ReactElement {
  const { origin, trans } = props;
  const { kind, name, steps, speed } = origin;
  return (
    <p className="jp-MegalensChips">
      {kind === 'replay' ? (
        <span
          className="jp-MegalensChip"
          title={trans.__('A recorded run, replayed as if it were live: %1', name ?? '')}
        >
          {speed === undefined || speed === 1 ? trans.__('replay') : trans.__('replay × %1', speed)}
        </span>
      ) : kind === 'trace' ? (
        <span
          className="jp-MegalensChip"
          title={trans.__('Files of another tool, read once and kept as a recording: %1', name ?? '')}
        >
          {trans.__('trace: %1', name ?? trans.__('unknown'))}
        </span>
      ) : (
        <span
          className="jp-MegalensChip"
          title={trans.__(
            'Another program’s hub, translated. Its settings may apply at its next start only.'
          )}
        >
          {trans.__(
            'foreign hub: %1',
            DIALECTS.find(each => each.id === name)?.name ?? name ?? trans.__('unknown')
          )}
        </span>
      )}
      {steps === 'inferred' && (
        <span
          className="jp-MegalensChip jp-mod-warn"
          title={trans.__(
            'This hub sends no step numbers. They are inferred from the order of its messages and may differ from the training’s own.'
          )}
        >
          {trans.__('steps inferred')}
        </span>
      )}
    </p>
  );
}
