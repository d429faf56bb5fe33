import * as React from 'react';
import type { CompressorInfo } from '../../protocol/messages.generated';
import type { IFault } from '../shell/apply-state';
import { Field, SchemaForm } from './schema-form';

/** What is chosen: its name, and its parameters where some were set. */
interface IChosen {
  readonly name: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** A choice among things that each have parameters of their own, such as compressors, and the form of those of the chosen one. */
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
}): React.ReactElement {
  const { id, field, label, choices, chosen, faults, disabled, choose, change } = props;
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
          <select
            {...shared}
            className="jp-mod-styled"
            value={chosen.name}
            onChange={event => choose(event.target.value)}
          >
            {choices.map(each => (
              <option key={each.name} value={each.name}>
                {each.title}
              </option>
            ))}
          </select>
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
        />
      )}
    </>
  );
}
