import { PASSES, PHASES } from '../../store/tensor-data';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { CompressorInfo } from '../../protocol/messages.generated';
import type { IFault, IFullSetting } from './draft';
import { EMBEDDING } from '../../protocol/ranges';
import { Choices, LayersField, SchemaChoice } from './schema-choice';
import { Field, NumberInput } from './schema-form';
import { compressorText, tilesText } from './setting-text';
import type { IFlagRow, TraceModel } from './trace-model';

/** One flag: a line that opens to its setting. */
export function FlagRow(props: {
  row: IFlagRow;
  trace: TraceModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { row, trace, trans } = props;
  const { info, setting, available } = row;
  const [wanted, setWanted] = React.useState(false);
  // A fault opens the row that it is in.
  const open = setting !== null && (wanted || row.faults.size > 0);
  const id = `jp-Megalens-flag-${info.name}`;
  const reason = info.reason ?? (available ? undefined : trans.__('No layer of this model has it.'));
  const summary = setting === null ? '' : summaryOf(setting, trace.hello?.compressors ?? []);
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <li
      className={`jp-MegalensFlag${available ? '' : ' jp-mod-unavailable'}${row.edited ? ' jp-mod-edited' : ''}`}
    >
      <div className="jp-MegalensFlag-line">
        <input
          id={id}
          type="checkbox"
          checked={setting !== null}
          disabled={!available || !trace.writable}
          aria-describedby={reason === undefined ? undefined : `${id}-reason`}
          onChange={event => trace.toggle(info.name, event.target.checked)}
        />
        <label htmlFor={id} title={info.name}>
          {info.title}
        </label>
        {setting !== null && (
          <button
            type="button"
            className="jp-MegalensFlag-summary"
            aria-expanded={open}
            aria-label={trans.__('Setting of %1: %2', info.title, summary)}
            onClick={() => setWanted(!open)}
          >
            <span>{summary}</span>
            <Caret.react tag="span" />
          </button>
        )}
      </div>
      {reason !== undefined && (
        <p id={`${id}-reason`} className="jp-MegalensFlag-reason">
          {reason}
        </p>
      )}
      {[...row.faults].some(([field]) => field === '') && (
        <p className="jp-MegalensField-fault" role="alert">
          {row.faults.get('')?.message}
        </p>
      )}
      {open && <FlagForm id={id} row={row} setting={setting} trace={trace} trans={trans} />}
    </li>
  );
}

function FlagForm(props: {
  id: string;
  row: IFlagRow;
  setting: IFullSetting;
  trace: TraceModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { id, row, setting, trace, trans } = props;
  const { name, layers, title } = row.info;
  const tiles = tilesText(row.info, setting.compressor, trans);
  const disabled = !trace.writable;
  const fault = (field: string): IFault | undefined => row.faults.get(field);
  return (
    <fieldset
      className="jp-MegalensFlag-form"
      disabled={disabled}
      aria-label={trans.__('Setting of %1', title)}
    >
      {layers.some(layer => layer !== EMBEDDING) && (
        <LayersField
          id={id}
          value={setting.layers}
          layers={layers}
          fault={fault('layers')}
          change={text => trace.change(name, { layers: text })}
          trans={trans}
        />
      )}
      <Field
        id={`${id}-every`}
        label={trans.__('Every n steps')}
        help={trans.__('1 traces every step, 10 every tenth')}
        fault={fault('every')}
      >
        {shared => (
          <NumberInput
            {...shared}
            value={setting.every}
            minimum={1}
            change={value => value !== null && trace.change(name, { every: value })}
          />
        )}
      </Field>
      <Field
        id={`${id}-samples`}
        label={trans.__('Samples')}
        help={trans.__('First samples of each micro-batch; empty keeps all')}
        fault={fault('samples')}
      >
        {shared => (
          <NumberInput
            {...shared}
            value={setting.samples}
            minimum={1}
            empty={trans.__('all')}
            change={value => trace.change(name, { samples: value })}
          />
        )}
      </Field>
      <Choices
        label={trans.__('Phases')}
        options={PHASES}
        chosen={setting.phases}
        change={phases => trace.change(name, { phases })}
      />
      <Choices
        label={trans.__('Passes')}
        help={trans.__('Backward is the gradient of the loss with respect to the same tensor')}
        options={PASSES}
        chosen={setting.passes}
        change={passes => trace.change(name, { passes })}
      />
      {trace.replicas > 1 && (
        <Field
          id={`${id}-replicas`}
          label={trans.__('Replicas')}
          help={trans.__('Whether every data-parallel replica is traced, or the first only')}
          fault={fault('replicas')}
        >
          {shared => (
            <select
              {...shared}
              className="jp-mod-styled"
              value={setting.replicas}
              onChange={event =>
                trace.change(name, { replicas: event.target.value === 'all' ? 'all' : 'first' })
              }
            >
              <option value="first">{trans.__('the first')}</option>
              <option value="all">{trans.__('all %1', trace.replicas)}</option>
            </select>
          )}
        </Field>
      )}
      <SchemaChoice
        id={id}
        field="compressor"
        label={trans.__('Compressor')}
        choices={trace.hello?.compressors ?? []}
        chosen={setting.compressor}
        faults={row.faults}
        disabled={disabled}
        choose={compressor => trace.chooseCompressor(name, compressor)}
        change={(parameter, value) => trace.changeParameter(name, parameter, value)}
      />
      {tiles !== '' && <p className="jp-MegalensHint">{tiles}</p>}
    </fieldset>
  );
}

function summaryOf(setting: IFullSetting, compressors: readonly CompressorInfo[]): string {
  const layers = setting.layers === 'all' ? '' : `${setting.layers} · `;
  return `${layers}${compressorText(setting.compressor, compressors)}${setting.every > 1 ? ` /${setting.every}` : ''}${setting.passes.includes('backward') ? ' ∇' : ''}`;
}
