import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatInteger } from '../../charts/format';
import { Confirm } from '../shell/confirm';
import type { PanelModel } from '../shell/panel-model';
import type { PerturbModel } from './perturb-model';
import { perturbText } from '../../views/shared/perturb-text';
import { Field, NumberInput } from '../trace/schema-form';
import { Section } from '../shell/section';
import { SiteRow } from './site-row';

/** What can be perturbed, where the training script allows it. */
export function PerturbSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  if (open === null || !open.perturb.writable || open.perturb.rows.length === 0) {
    return null;
  }
  const { perturb, source } = open;
  const { armed, asked } = perturb;
  return (
    <Section
      name="perturb"
      title={trans.__('Perturb')}
      folded
      tools={
        <span className={`jp-MegalensSection-word${armed === null ? '' : ' jp-mod-warn'}`}>
          {armed === null ? trans.__('disarmed') : trans.__('armed')}
        </span>
      }
    >
      {armed === null ? (
        <Form perturb={perturb} sites={source.hello?.sites ?? []} trans={trans} />
      ) : (
        <p className="jp-MegalensHint">
          {trans.__('Armed, as the banner above says. Disarm it to arm something else; this form is kept.')}
        </p>
      )}
      {armed === null && perturb.touched > 0 && (
        <p className="jp-MegalensHint" role="status">
          {trans._n(
            '%2 step of this run was perturbed.',
            '%2 steps of this run were perturbed.',
            perturb.touched,
            formatInteger(perturb.touched)
          )}
        </p>
      )}
      {asked.kind !== 'idle' && (
        <p
          className={`jp-MegalensApply-state jp-mod-${asked.kind}`}
          role={asked.kind === 'refused' ? 'alert' : 'status'}
        >
          {stateText(perturb, trans)}
        </p>
      )}
    </Section>
  );
}

function Form(props: {
  perturb: PerturbModel;
  sites: Parameters<typeof perturbText>[1];
  trans: TranslationBundle;
}): React.ReactElement {
  const { perturb, sites, trans } = props;
  const idle = !perturb.ready || perturb.asked.kind === 'sent' || perturb.asked.kind === 'accepted';
  return (
    <>
      <ul className="jp-MegalensFlags">
        {perturb.rows.map(row => (
          <SiteRow key={row.info.name} row={row} perturb={perturb} trans={trans} />
        ))}
      </ul>
      <div className="jp-MegalensPerturb-rest">
        <Field
          id="jp-Megalens-perturb-seed"
          label={trans.__('Seed')}
          help={trans.__('The same seed gives the same perturbation')}
        >
          {shared => (
            <NumberInput
              {...shared}
              value={perturb.seed}
              minimum={0}
              maximum={Number.MAX_SAFE_INTEGER}
              change={value => value !== null && (perturb.seed = value)}
            />
          )}
        </Field>
        <Field
          id="jp-Megalens-perturb-steps"
          label={trans.__('Steps')}
          help={trans.__('Training steps after which it ends by itself')}
        >
          {shared => (
            <NumberInput
              {...shared}
              value={perturb.steps}
              minimum={1}
              change={value => value !== null && (perturb.steps = value)}
            />
          )}
        </Field>
        <Confirm
          label={trans.__('Arm…')}
          title={perturb.ready ? undefined : trans.__('Choose at least one place first')}
          disabled={idle}
          question={trans.__(
            'Perturb this training for %1? %2. Weights come back exactly as they were when it ends; what was trained meanwhile stays trained.',
            trans._n('%2 step', '%2 steps', perturb.steps, formatInteger(perturb.steps)),
            perturbText(perturb.wish, sites)
          )}
          yes={trans.__('Arm')}
          no={trans.__('Cancel')}
          act={() => void perturb.arm()}
        />
      </div>
    </>
  );
}

function stateText({ asked, rows, armed }: PerturbModel, trans: TranslationBundle): string {
  switch (asked.kind) {
    case 'idle':
      return '';
    case 'sent':
      return trans.__('Asking the run…');
    case 'accepted':
      return trans.__('Takes effect at step %1', formatInteger(asked.step));
    case 'applied':
      return armed === null ? '' : trans.__('✓ Armed at step %1', formatInteger(asked.step));
    case 'refused':
      return rows.some(row => row.faults.size > 0)
        ? trans.__('Not changed. Training goes on as it was.')
        : trans.__('Not changed. %1', asked.message);
  }
}
