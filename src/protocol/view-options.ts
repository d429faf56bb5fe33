import { Validator, type Schema } from '@cfworker/json-schema';
import { own } from './own';
import { ProtocolError } from './protocol-error';
import { otherView, viewInfos, type IViewDescriptor } from './view-info';
import { VIEWS_SCHEMA, type ViewOptions } from './views.generated';
import { isWhole } from './whole-text';

/** Options of a view with no member left out. */
export type FullViewOptions = ViewOptions extends infer O
  ? O extends ViewOptions
    ? Required<O>
    : never
  : never;

/** The full options of the view named `K`. */
export type FullOptionsOf<K extends ViewOptions['view']> = Extract<FullViewOptions, { view: K }>;

interface IKind {
  readonly validator: Validator;
  readonly definition: Schema;
}

const KINDS: ReadonlyMap<string, IKind> = new Map(
  (VIEWS_SCHEMA.oneOf ?? []).map(({ $ref }) => {
    const definition: Schema = own(VIEWS_SCHEMA.$defs, String($ref).slice('#/$defs/'.length)) ?? {};
    const view = definition.properties?.view;
    const validator = new Validator({ $ref, $defs: VIEWS_SCHEMA.$defs }, '2020-12');
    return [String(typeof view === 'object' ? view.const : ''), { validator, definition }];
  })
);

/** Of views of other packages, by what they were registered with. */
const otherKinds = new WeakMap<IViewDescriptor, IKind>();

function kindOf(view: string): IKind | undefined {
  const other = otherView(view);
  if (other === undefined) {
    return KINDS.get(view);
  }
  let kind = otherKinds.get(other);
  if (kind === undefined) {
    const properties = { ...other.options.properties, view: { const: view } };
    const definition: Schema = { ...other.options, properties };
    kind = { validator: new Validator(definition, '2020-12'), definition };
    otherKinds.set(other, kind);
  }
  return kind;
}

/** The default of every option of a view that has one. */
export function viewDefaults(view: string): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(kindOf(view)?.definition.properties ?? {}).flatMap(([name, property]) =>
      typeof property === 'object' && 'default' in property ? [[name, property.default]] : []
    )
  );
}

/**
 * Check a view's options, such as came out of a saved workspace, a notebook or a report's recipe.
 *
 * @returns The same options with the defaults of the contract filled in.
 * @throws ProtocolError `bad-parameter` with the field.
 */
export function fullViewOptions(value: unknown): FullViewOptions {
  const view = typeof value === 'object' && value !== null && 'view' in value ? value.view : undefined;
  const kind = typeof view === 'string' ? kindOf(view) : undefined;
  if (kind === undefined || typeof value !== 'object') {
    const known = viewInfos()
      .map(({ name }) => name)
      .join(', ');
    throw new ProtocolError('bad-parameter', `There is no such view. The views are ${known}.`, {
      field: 'view',
      expected: known,
      got: String(view).slice(0, 200)
    });
  }
  if (!isWhole(value)) {
    throw new ProtocolError(
      'bad-parameter',
      `The options of the ${view} view must be whole texts, without halves of surrogate pairs, at most 32 levels deep.`
    );
  }
  const [error] = kind.validator.validate(value).errors.slice(-1);
  if (error !== undefined) {
    const field = error.instanceLocation.split('/').slice(1).join('.');
    throw new ProtocolError(
      'bad-parameter',
      `The options of the ${view} view are wrong${field && ` at ${field}`}: ${error.error}`,
      {
        field: field || undefined
      }
    );
  }
  return { ...viewDefaults(String(view)), ...value } as FullViewOptions;
}
