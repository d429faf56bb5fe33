import * as React from 'react';
import type { IFault } from './draft';
import { own } from '../../protocol/records';

/** A property of a JSON Schema, as far as forms read it. */
interface IProperty {
  type?: string;
  title?: string;
  description?: string;
  enum?: readonly unknown[];
  examples?: readonly unknown[];
  minimum?: number;
  maximum?: number;
}

/** Fields for the properties of an object schema: numbers, texts with examples, choices and switches. */
export function SchemaForm(props: {
  id: string;
  schema: Record<string, unknown>;
  values: Readonly<Record<string, unknown>>;
  faults: (name: string) => IFault | undefined;
  disabled: boolean;
  change: (name: string, value: unknown) => void;
}): React.ReactElement {
  const properties = (props.schema as { properties?: Record<string, IProperty> }).properties ?? {};
  return (
    <>
      {Object.entries(properties).map(([name, property]) => (
        <Field
          key={name}
          id={`${props.id}-${name}`}
          label={property.title ?? name}
          help={property.description}
          fault={props.faults(name)}
          value={own(props.values, name)}
        >
          {shared => (
            <PropertyInput
              {...shared}
              property={property}
              value={own(props.values, name)}
              disabled={props.disabled}
              change={value => props.change(name, value)}
            />
          )}
        </Field>
      ))}
    </>
  );
}

/** Attributes that tie an input to its label, help and fault. */
export interface IFieldAttributes {
  id: string;
  'aria-invalid': boolean;
  'aria-describedby': string | undefined;
  title: string | undefined;
}

/** A label, an input and the fault that belongs to it, with a caret under the column at fault. */
export function Field(props: {
  id: string;
  label: string;
  help?: string;
  fault?: IFault;
  /** The text at fault, shown with the caret. */
  value?: unknown;
  children: (shared: IFieldAttributes) => React.ReactNode;
}): React.ReactElement {
  const { id, label, help, fault } = props;
  return (
    <div className={`jp-MegalensField${fault ? ' jp-mod-fault' : ''}`}>
      <label htmlFor={id} title={help}>
        {label}
      </label>
      {props.children({
        id,
        'aria-invalid': fault !== undefined,
        'aria-describedby': fault ? `${id}-fault` : undefined,
        title: help
      })}
      {fault && (
        <div id={`${id}-fault`} className="jp-MegalensField-fault" role="alert">
          {fault.column !== null && (
            <pre aria-hidden="true">{`${String(props.value ?? '')}\n${' '.repeat(fault.column - 1)}^`}</pre>
          )}
          {fault.message}
        </div>
      )}
    </div>
  );
}

function PropertyInput(
  props: IFieldAttributes & {
    property: IProperty;
    value: unknown;
    disabled: boolean;
    change: (value: unknown) => void;
  }
): React.ReactElement {
  const { property, value, change, ...shared } = props;
  if (property.enum !== undefined) {
    return (
      <select
        {...shared}
        className="jp-mod-styled"
        value={JSON.stringify(value)}
        onChange={event => change(JSON.parse(event.target.value))}
      >
        {property.enum.map(option => (
          <option key={JSON.stringify(option)} value={JSON.stringify(option)}>
            {String(option)}
          </option>
        ))}
      </select>
    );
  }
  switch (property.type) {
    case 'boolean':
      return (
        <input
          {...shared}
          type="checkbox"
          checked={value === true}
          onChange={event => change(event.target.checked)}
        />
      );
    case 'integer':
    case 'number':
      return (
        <NumberInput
          {...shared}
          value={typeof value === 'number' ? value : null}
          minimum={property.minimum}
          maximum={property.maximum}
          whole={property.type === 'integer'}
          change={change}
        />
      );
    default:
      return (
        <>
          <input
            {...shared}
            type="text"
            className="jp-mod-styled"
            spellCheck={false}
            autoComplete="off"
            list={property.examples ? `${shared.id}-examples` : undefined}
            value={String(value ?? '')}
            onChange={event => change(event.target.value)}
          />
          {property.examples && (
            <datalist id={`${shared.id}-examples`}>
              {property.examples.map(example => (
                <option key={String(example)} value={String(example)} />
              ))}
            </datalist>
          )}
        </>
      );
  }
}

/** A number being typed: what is no number yet is kept as text and not passed on. */
export function NumberInput(
  props: Partial<IFieldAttributes> & {
    value: number | null;
    minimum?: number;
    maximum?: number;
    whole?: boolean;
    /** What an empty field means; without it an empty field is put back. */
    empty?: string;
    disabled?: boolean;
    'aria-label'?: string;
    change: (value: number | null) => void;
  }
): React.ReactElement {
  const { value, minimum, maximum, whole = true, empty, change, ...shared } = props;
  const [typed, setTyped] = React.useState<string | null>(null);
  const onChange = (text: string) => {
    setTyped(text);
    const parsed = Number(text);
    const fits = parsed >= (minimum ?? -Infinity) && parsed <= (maximum ?? Infinity);
    if (text.trim() === '') {
      if (empty !== undefined) {
        change(null);
      }
    } else if (fits && (!whole || Number.isInteger(parsed))) {
      change(parsed);
    }
  };
  return (
    <input
      {...shared}
      type="number"
      className="jp-mod-styled"
      min={minimum}
      max={maximum}
      step={whole ? 1 : 'any'}
      placeholder={empty}
      value={typed ?? value ?? ''}
      onChange={event => onChange(event.target.value)}
      onBlur={() => setTyped(null)}
    />
  );
}
