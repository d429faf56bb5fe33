import { Validator, type Schema } from '@cfworker/json-schema';
import { ProtocolError } from './protocol-error';
import {
  VIEWS_SCHEMA,
  type HeatmapOptions,
  type HistoryOptions,
  type MomentsOptions,
  type ScalarsOptions,
  type TrendOptions,
  type ViewOptions
} from './views.generated';

/** Options of a view with no member left out. */
export type FullViewOptions =
  | Required<HeatmapOptions>
  | Required<TrendOptions>
  | Required<ScalarsOptions>
  | Required<HistoryOptions>
  | Required<MomentsOptions>;

/** The full options of the view named `K`. */
export type FullOptionsOf<K extends ViewOptions['view']> = Extract<FullViewOptions, { view: K }>;

const KINDS: ReadonlyMap<string, { validator: Validator; definition: Schema }> = new Map(
  (VIEWS_SCHEMA.oneOf ?? []).map(({ $ref }) => {
    const definition: Schema = VIEWS_SCHEMA.$defs[String($ref).slice('#/$defs/'.length)];
    const view = definition.properties?.view;
    const validator = new Validator({ $ref, $defs: VIEWS_SCHEMA.$defs }, '2020-12');
    return [String(typeof view === 'object' ? view.const : ''), { validator, definition }];
  })
);

/**
 * Check a view's options, such as came out of a saved workspace, a notebook or a report's recipe.
 *
 * @returns The same options with the defaults of the contract filled in.
 * @throws ProtocolError `bad-parameter` with the field.
 */
export function fullViewOptions(value: unknown): FullViewOptions {
  const view = typeof value === 'object' && value !== null && 'view' in value ? value.view : undefined;
  const kind = typeof view === 'string' ? KINDS.get(view) : undefined;
  if (kind === undefined || typeof value !== 'object') {
    const known = [...KINDS.keys()].join(', ');
    throw new ProtocolError('bad-parameter', `There is no such view. The views are ${known}.`, {
      field: 'view',
      expected: known,
      got: String(view).slice(0, 200)
    });
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
  const full: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(kind.definition.properties ?? {})) {
    if (typeof property === 'object' && 'default' in property) {
      full[name] = property.default;
    }
  }
  return { ...full, ...value } as FullViewOptions;
}
