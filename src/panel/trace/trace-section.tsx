import type { TranslationBundle } from '@jupyterlab/translation';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { formatBytes, formatInteger } from '../../charts/format';
import type { Hello, Peer } from '../../protocol/messages.generated';
import { EMBEDDING } from '../../protocol/ranges';
import { PASSES, PHASES } from '../../store/tensor-data';
import type { PanelModel } from '../shell/panel-model';
import { Select } from '../shell/fields';
import { Section, PanelButton } from '../shell/section';
import type { IFault, IFullSetting } from './draft';
import { Choices, LayersField, SchemaChoice } from './schema-choice';
import { titleWords } from '../../views/shared/describe';
import { Field, NumberInput } from './schema-form';
import { compressorText, tilesText, patchText } from './estimate';
import type { IFlagRow, TraceModel, IForeignChange } from './trace-model';
import { translateBy } from '../../views/shared/translate';

/** One flag: a line that opens to its setting. */
function FlagRow(props: { row: IFlagRow; trace: TraceModel; trans: TranslationBundle }): React.ReactElement {
  const { row, trace, trans } = props;
  const { info, setting, available } = row;
  const [wanted, setWanted] = React.useState(false);
  // A fault opens the row that it is in.
  const open = setting !== null && (wanted || row.faults.size > 0);
  const id = `jp-Megalens-flag-${info.name}`;
  const reason = info.reason ?? (available ? undefined : trans.__('No layer of this model has it.'));
  const summary = setting === null ? '' : summaryOf(setting, trace.hello, trans);
  const title = titleWords(info.title, translateBy(trans));
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
        <label htmlFor={id} title={info.evidence ? `${info.name}\n${info.evidence}` : info.name}>
          {title}
        </label>
        {setting !== null && (
          <button
            type="button"
            className="jp-MegalensFlag-summary"
            aria-expanded={open}
            aria-label={trans.__('Setting of %1: %2', title, summary)}
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
      {open && info.evidence && <p className="jp-MegalensFlag-evidence">{info.evidence}</p>}
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
            <Select
              {...shared}
              value={setting.replicas}
              options={[
                ['first', trans.__('the first')],
                ['all', trans.__('all %1', trace.replicas)]
              ]}
              choose={value => trace.change(name, { replicas: value === 'all' ? 'all' : 'first' })}
            />
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
        trans={trans}
      />
      {tiles !== '' && <p className="jp-MegalensHint">{tiles}</p>}
    </fieldset>
  );
}

function summaryOf(setting: IFullSetting, hello: Hello | null, trans: TranslationBundle): string {
  const layers = setting.layers === 'all' ? '' : `${setting.layers} · `;
  return `${layers}${compressorText(setting.compressor, hello ?? {}, trans)}${setting.every > 1 ? ` /${setting.every}` : ''}${setting.passes.includes('backward') ? ' ∇' : ''}`;
}

/** What is traced, one row per flag that the run has. */
export function TraceSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const trace = open?.trace;
  if (trace === undefined || trace.hello === null || trace.rows.length === 0) {
    return null;
  }
  const { foreign, writable } = trace;
  return (
    <Section name="trace" title={trans.__('Trace')}>
      {foreign !== null && <Foreign change={foreign} trace={trace} trans={trans} />}
      <FlagList trace={trace} trans={trans} />
      {!writable && (
        <p className="jp-MegalensHint">
          {trans.__('What this run traced. Settings can be changed while it trains.')}
        </p>
      )}
    </Section>
  );
}

/** From how many flags on one searches. */
const MANY = 6;

/** The flags, those with the searched words where there are many, and choices of several at once. */
function FlagList({ trace, trans }: { trace: TraceModel; trans: TranslationBundle }): React.ReactElement {
  const [sought, seek] = React.useState('');
  const words = sought.toLowerCase().split(/\s+/);
  const { rows, presets } = trace;
  const found = rows.filter(({ info, edited, faults }) => {
    const text = `${info.title} ${info.name}`.toLowerCase();
    return edited || faults.size > 0 || words.every(word => text.includes(word));
  });
  return (
    <>
      {(rows.length > MANY || trace.writable) && (
        <div className="jp-MegalensFlags-tools">
          {rows.length > MANY && (
            <input
              type="search"
              className="jp-mod-styled"
              placeholder={trans.__('Search')}
              aria-label={trans.__('Search what can be traced')}
              value={sought}
              onChange={event => seek(event.target.value)}
            />
          )}
          {trace.writable && presets.length > 0 && (
            <Select
              aria-label={trans.__('Presets')}
              value=""
              options={[
                ['', trans.__('Presets…')],
                ...presets.map((preset, at) => [String(at), presetWords(preset, trace, trans)] as const)
              ]}
              choose={at => presets[Number(at)] && trace.take(presets[Number(at)]!)}
            />
          )}
        </div>
      )}
      <ul className="jp-MegalensFlags">
        {found.map(row => (
          <FlagRow key={row.info.name} row={row} trace={trace} trans={trans} />
        ))}
      </ul>
      {found.length === 0 && <p className="jp-MegalensHint">{trans.__('Nothing is called so.')}</p>}
    </>
  );
}

function presetWords(
  { title, bytes, complete }: TraceModel['presets'][number],
  { isOfStep }: TraceModel,
  trans: TranslationBundle
): string {
  const words = trans.__(title);
  return !complete
    ? words
    : isOfStep
      ? trans.__('%1: ≈ %2/step', words, formatBytes(bytes))
      : trans.__('%1: ≈ %2/micro-batch', words, formatBytes(bytes));
}

function Foreign(props: {
  change: IForeignChange;
  trace: TraceModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { change, trace, trans } = props;
  const who = authorOf(change.by, trans);
  const when = change.time === null ? '' : new Date(change.time * 1000).toLocaleTimeString();
  return (
    <div className="jp-MegalensNotice jp-mod-plain" role="status">
      <p>
        {change.count === 1
          ? trans.__('%1 changed the settings at step %2', who, formatInteger(change.step))
          : trans.__(
              '%1 changed the settings, the last of %2 changes at step %3',
              who,
              formatInteger(change.count),
              formatInteger(change.step)
            )}
        {when !== '' && ` (${when})`}: {changeText(change, trace.hello, trans)}
      </p>
      <PanelButton act={() => trace.dismissForeign()}>{trans.__('Dismiss')}</PanelButton>
    </div>
  );
}

/** Who changed something, as the subject of a sentence: the program, and the person where known. */
function authorOf(by: Peer | null, trans: TranslationBundle): string {
  switch (by?.name) {
    case 'kernel':
      return by.user === undefined ? trans.__('Your notebook') : trans.__('A notebook of %1', by.user);
    case 'tracer':
      return trans.__('The training script');
    default:
      return by?.user ?? trans.__('Another viewer');
  }
}

/** What differs from before; changes that were taken back leave nothing. */
function changeText({ flags }: IForeignChange, hello: Hello | null, trans: TranslationBundle): string {
  return Object.keys(flags).length === 0
    ? trans.__('everything is as it was before')
    : patchText({ flags: { ...flags } }, hello, trans);
}
