import * as React from 'react';
import { titleWords } from '../../views/shared/describe';
import type { Translate } from '../../views';
import type { IFault } from './draft';
import { own } from '../../protocol/records';
import { Select } from '../shell/fields';

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
  t: Translate;
}): React.ReactElement {
  const properties = (props.schema as { properties?: Record<string, IProperty> }).properties ?? {};
  return (
    <>
      {Object.entries(properties).map(([name, property]) => (
        <Field
          key={name}
          id={`${props.id}-${name}`}
          label={titleWords(property.title ?? name, props.t)}
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
  /** Takes the nearest right value. */
  mend?: (nearest: string) => void;
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
          {props.mend !== undefined && fault.nearest !== undefined && (
            <>
              {' '}
              <button
                type="button"
                className="jp-MegalensLink"
                onClick={() => props.mend?.(fault.nearest ?? '')}
              >
                {fault.nearest}
              </button>
            </>
          )}
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
      <Select
        {...shared}
        value={JSON.stringify(value)}
        options={property.enum.map(option => [JSON.stringify(option), String(option)])}
        choose={text => change(JSON.parse(text))}
      />
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

/**
 * A number being typed. What is no right number is not passed on: it says why, and the nearest right one is
 * taken when the field is left.
 */
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
  const { value, minimum = -Infinity, maximum = Infinity, whole = true, empty, change, ...shared } = props;
  const [typed, setTyped] = React.useState<string | null>(null);
  const number = typed === null || typed.trim() === '' ? NaN : Number(typed);
  const nearest = Math.min(maximum, Math.max(minimum, whole ? Math.round(number) : number));
  const isWrong = Number.isFinite(number) && nearest !== number;
  const onChange = (text: string) => {
    setTyped(text);
    const parsed = Number(text);
    const fits = parsed >= minimum && parsed <= maximum;
    if (text.trim() === '') {
      if (empty !== undefined) {
        change(null);
      }
    } else if (fits && (!whole || Number.isInteger(parsed))) {
      change(parsed);
    }
  };
  return (
    <>
      <input
        {...shared}
        aria-invalid={isWrong || shared['aria-invalid']}
        type="number"
        className="jp-mod-styled"
        min={Number.isFinite(minimum) ? minimum : undefined}
        max={Number.isFinite(maximum) ? maximum : undefined}
        step={whole ? 1 : 'any'}
        placeholder={empty}
        value={typed ?? value ?? ''}
        onChange={event => onChange(event.target.value)}
        onBlur={() => {
          setTyped(null);
          if (isWrong) {
            change(nearest);
          }
        }}
      />
      {isWrong && (
        <span className="jp-MegalensField-fault" role="alert">
          {boundsText(minimum, maximum, whole)}
        </span>
      )}
    </>
  );
}

/** Which numbers fit: `1 or more`, `whole numbers, 1 to 8`. */
function boundsText(minimum: number, maximum: number, whole: boolean): string {
  const bounds =
    maximum === Infinity
      ? `${minimum} or more`
      : minimum === -Infinity
        ? `${maximum} or less`
        : `${minimum} to ${maximum}`;
  return whole ? `Whole numbers, ${bounds}` : bounds;
}
