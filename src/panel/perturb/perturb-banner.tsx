import * as React from 'react';
import { formatInteger } from '../../charts/format';
import { authorText } from '../shell/notice';
import type { PanelModel } from '../shell/panel-model';
import { perturbText } from '../../views/shared/perturb-text';
import { PanelButton } from '../shell/section';

/** Says over the whole panel that the training is perturbed, until it is not. */
export function PerturbBanner({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const armed = open?.perturb.armed ?? null;
  if (open === null || armed === null) {
    return null;
  }
  const { perturb, control, source } = open;
  const { left, touchedNow } = perturb;
  const who = authorText(control.author('perturb'), trans);
  const busy = perturb.asked.kind === 'sent';
  return (
    <div className="jp-MegalensArmed" role="region" aria-label={trans.__('Perturbation')}>
      <p role="status">
        <strong>{trans.__('This training is perturbed.')}</strong>{' '}
        {perturbText(armed, source.hello?.sites ?? [])}
        {' · '}
        {trans.__('seed %1', armed.seed ?? 0)}
        {who !== '' && ` · ${trans.__('armed %1', who)}`}
      </p>
      <div className="jp-MegalensArmed-line">
        <p className="jp-MegalensArmed-count">
          {[
            ...(armed.until === undefined ? [] : [trans.__('ends at step %1', formatInteger(armed.until))]),
            ...(left === null ? [] : [trans._n('%2 step left', '%2 steps left', left, formatInteger(left))]),
            ...(touchedNow === null ? [] : [trans.__('%1 touched so far', formatInteger(touchedNow))])
          ].join(' · ')}
        </p>
        {control.controls.includes('perturb') && (
          <PanelButton idle={!perturb.writable || busy} act={() => void perturb.disarm()}>
            {trans.__('Disarm')}
          </PanelButton>
        )}
      </div>
    </div>
  );
}
