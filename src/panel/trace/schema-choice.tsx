import type { TranslationBundle } from '@jupyterlab/translation';
import { titleWords } from '../../views/shared/describe';
import * as React from 'react';
import type { CompressorInfo } from '../../protocol/messages.generated';
import type { IFault } from './draft';
import { layerSpan } from './estimate';
import { Select } from '../shell/fields';
import { Field, SchemaForm } from './schema-form';
import { translateBy } from '../../views/shared/translate';

/** Some of a few words, at least one of them. */
export function Choices<T extends string>(props: {
  label: string;
  help?: string;
  options: readonly T[];
  chosen: readonly T[];
  change: (chosen: T[]) => void;
}): React.ReactElement {
  const { label, help, options, chosen, change } = props;
  return (
    <div className="jp-MegalensField" role="group" aria-label={label} title={help}>
      <span className="jp-MegalensField-label">{label}</span>
      <span className="jp-MegalensField-choices">
        {options.map(option => (
          <label key={option}>
            <input
              type="checkbox"
              checked={chosen.includes(option)}
              onChange={event => {
                const next = options.filter(each =>
                  each === option ? event.target.checked : chosen.includes(each)
                );
                if (next.length > 0) {
                  change(next);
                }
              }}
            />
            {option}
          </label>
        ))}
      </span>
    </div>
  );
}

/** Which layers, as text: `all`, or ranges. */
export function LayersField(props: {
  id: string;
  value: string;
  /** Those that there are. */
  layers: readonly number[];
  fault: IFault | undefined;
  change: (layers: string) => void;
  trans: TranslationBundle;
}): React.ReactElement {
  const { id, value, layers, fault, change, trans } = props;
  return (
    <Field
      id={`${id}-layers`}
      label={trans.__('Layers')}
      help={trans.__('“all”, or ranges such as 0-3,7. This model has %1 here.', layerSpan(layers))}
      fault={fault}
      mend={change}
    >
      {shared => (
        <input
          {...shared}
          type="text"
          className="jp-mod-styled"
          spellCheck={false}
          value={value}
          onChange={event => change(event.target.value)}
        />
      )}
    </Field>
  );
}

/** What is chosen: its name, and its parameters where some were set. */
interface IChosen {
  readonly name: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** A choice among things with parameters, such as compressors, and the form of the chosen one. */
export function SchemaChoice(props: {
  /** Prefix of the elements' ids. */
  id: string;
  /** The setting's field; its faults are those of `field`, `field.name` and `field.params.*`. */
  field: string;
  label: string;
  choices: readonly Pick<CompressorInfo, 'name' | 'title' | 'description' | 'schema'>[];
  chosen: IChosen;
  faults: ReadonlyMap<string, IFault>;
  disabled: boolean;
  choose: (name: string) => void;
  change: (parameter: string, value: unknown) => void;
  trans: TranslationBundle;
}): React.ReactElement {
  const { id, field, label, choices, chosen, faults, disabled, choose, change, trans } = props;
  const t = translateBy(trans);
  const info = choices.find(each => each.name === chosen.name);
  return (
    <>
      <Field
        id={`${id}-${field}`}
        label={label}
        help={info?.description}
        fault={faults.get(field) ?? faults.get(`${field}.name`)}
      >
        {shared => (
          <Select
            {...shared}
            value={chosen.name}
            options={choices.map(({ name, title }) => [name, titleWords(title, t)])}
            choose={choose}
          />
        )}
      </Field>
      {info !== undefined && (
        <SchemaForm
          id={`${id}-param`}
          schema={info.schema}
          values={chosen.params ?? {}}
          faults={parameter => faults.get(`${field}.params.${parameter}`)}
          disabled={disabled}
          change={change}
          t={t}
        />
      )}
    </>
  );
}
