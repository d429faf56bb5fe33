import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { PHASES } from '../../store/tensor-data';
import { formatInteger } from '../../charts/format';
import { titleWords } from '../../views/shared/describe';
import { perturbText } from '../../views/shared/perturb-text';
import { Confirm } from '../shell/dialogs';
import type { PanelModel } from '../shell/panel-model';
import { askedText } from '../trace/apply-bar';
import { Field, NumberInput } from '../trace/schema-form';
import { PanelButton, Section } from '../shell/section';
import { Choices, LayersField, SchemaChoice } from '../trace/schema-choice';
import { authorText } from '../shell/notice';
import type { IFullSite, ISiteRow, PerturbModel } from './perturb-model';
import { translateBy } from '../../views/shared/translate';

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

/** One place that can be perturbed: a line that opens to what is done there. */
function SiteRow(props: {
  row: ISiteRow;
  perturb: PerturbModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { row, perturb, trans } = props;
  const { info, setting, available } = row;
  const id = `jp-Megalens-site-${info.name}`;
  const reason =
    info.reason ?? (available ? undefined : trans.__('Nothing of this model can be perturbed here.'));
  return (
    <li className={`jp-MegalensFlag${available ? '' : ' jp-mod-unavailable'}`}>
      <div className="jp-MegalensFlag-line">
        <input
          id={id}
          type="checkbox"
          checked={setting !== null}
          disabled={!available}
          aria-describedby={reason === undefined ? undefined : `${id}-reason`}
          onChange={event => perturb.toggle(info.name, event.target.checked)}
        />
        <label htmlFor={id}>{titleWords(info.title, translateBy(trans))}</label>
      </div>
      {reason !== undefined && (
        <p id={`${id}-reason`} className="jp-MegalensFlag-reason">
          {reason}
        </p>
      )}
      {row.faults.has('') && (
        <p className="jp-MegalensField-fault" role="alert">
          {row.faults.get('')?.message}
        </p>
      )}
      {setting !== null && <SiteForm id={id} row={row} setting={setting} perturb={perturb} trans={trans} />}
    </li>
  );
}

function SiteForm(props: {
  id: string;
  row: ISiteRow;
  setting: IFullSite;
  perturb: PerturbModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { id, row, setting, perturb, trans } = props;
  const { name, title, kinds, layers } = row.info;
  return (
    <fieldset className="jp-MegalensFlag-form" aria-label={trans.__('Perturbation at %1', title)}>
      <SchemaChoice
        id={id}
        field="kind"
        label={trans.__('Kind')}
        choices={kinds}
        chosen={setting.kind}
        faults={row.faults}
        disabled={false}
        choose={kind => perturb.chooseKind(name, kind)}
        change={(parameter, value) => perturb.changeParameter(name, parameter, value)}
        trans={trans}
      />
      <LayersField
        id={id}
        value={setting.layers}
        layers={layers}
        fault={row.faults.get('layers')}
        change={text => perturb.change(name, { layers: text })}
        trans={trans}
      />
      <Choices
        label={trans.__('Phases')}
        options={PHASES}
        chosen={setting.phases}
        change={phases => perturb.change(name, { phases })}
      />
    </fieldset>
  );
}

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
            perturbText(perturb.value, sites)
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
  if (asked.kind === 'refused' && rows.some(row => row.faults.size > 0)) {
    return trans.__('Not changed. Training goes on as it was.');
  }
  const isArmed = asked.kind === 'applied' && armed !== null;
  return askedText(asked, trans, isArmed ? trans.__('✓ Armed at step %1', formatInteger(asked.step)) : '');
}
