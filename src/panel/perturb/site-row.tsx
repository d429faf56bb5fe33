import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { Phase } from '../../protocol/messages.generated';
import { Choices } from '../trace/choices';
import { LayersField } from '../trace/layers-field';
import type { IFullSite, ISiteRow, PerturbModel } from './perturb-model';
import { SchemaChoice } from '../trace/schema-choice';

const PHASES: readonly Phase[] = ['train', 'eval', 'generate'];

/** One place that can be perturbed: a line that opens to what is done there. */
export function SiteRow(props: {
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
        <label htmlFor={id}>{info.title}</label>
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
