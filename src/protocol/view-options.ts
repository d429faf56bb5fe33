import { ProtocolError } from './protocol-error';
import { kindsBy, schemaCheck, type IKind, type ISchema } from './schema-check';
import { isHere, otherView, viewInfo, viewInfos } from './view-info';
import type { IViewDescriptor } from './view-descriptor';
import VIEWS_SCHEMA from '#protocol/views.schema.json';
import type { ViewOptions } from './views.generated';
import { isWhole } from './texts';

export type FullViewOptions = ViewOptions extends infer O
  ? O extends ViewOptions
    ? Required<O>
    : never
  : never;

export type FullOptionsOf<K extends ViewOptions['view']> = Extract<FullViewOptions, { view: K }>;

const KINDS = kindsBy('view', VIEWS_SCHEMA);

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
    const definition: ISchema = { ...other.options, properties };
    kind = { check: schemaCheck(definition), definition };
    otherKinds.set(other, kind);
  }
  return kind;
}

export function viewDefaults(view: string): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(kindOf(view)?.definition.properties ?? {}).flatMap(([name, property]) =>
      typeof property === 'object' && 'default' in property ? [[name, property.default]] : []
    )
  );
}

/**
 * Options as they are called now, of a view that had another name as well. Of what compressors kept, a
 * statistic was saved by its plain name before whole tensors had any.
 */
export function renamed<T>(value: T): T {
  if (typeof value !== 'object' || value === null) {
    return value;
  }
  const view = 'view' in value ? viewInfos().find(({ was }) => was?.includes(String(value.view))) : undefined;
  return {
    ...value,
    ...(view && { view: view.name }),
    ...('statistic' in value && value.statistic === 'abs_mean' && { statistic: 'kept_abs_mean' })
  };
}

/**
 * Check a view's options, such as came out of a saved workspace, a notebook or a report's recipe.
 * @returns The same options with the defaults of the contract filled in.
 * @throws ProtocolError `bad-parameter` with the field.
 */
export function fullViewOptions(saved: unknown): FullViewOptions {
  const value = renamed(saved);
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
  if (otherView(String(view)) === undefined && !isHere(String(view))) {
    throw new ProtocolError(
      'bad-parameter',
      `The ${viewInfo(String(view))?.title ?? view} view is not part of this installation of Megalens: ` +
        'the instrument that draws it was left out.',
      { field: 'view' }
    );
  }
  if (!isWhole(value)) {
    throw new ProtocolError(
      'bad-parameter',
      `The options of the ${view} view must be whole texts, ` +
        'without halves of surrogate pairs, at most 32 levels deep.'
    );
  }
  const wrong = kind.check(value);
  if (wrong !== null) {
    const field = wrong.path.join('.');
    throw new ProtocolError(
      'bad-parameter',
      `The options of the ${view} view are wrong: ${field || 'it'} ${wrong.words}.`,
      {
        field: field || undefined
      }
    );
  }
  return { ...viewDefaults(String(view)), ...value } as FullViewOptions;
}

/** Saved options of a view, as far as they can be read. */
export interface IKeptOptions {
  readonly options: FullViewOptions;
  /** Names of those that were left out: unknown ones, and those whose value the contract does not take. */
  readonly dropped: readonly string[];
}

/** Most members of saved options that are looked at one by one. */
const MOST = 200;

/**
 * Read options that were saved by somebody: a workspace, a notebook, another version. What cannot be read
 * takes its default, so that one bad value never costs the view.
 *
 * @throws ProtocolError `bad-parameter` when there is no such view, or what it cannot do without (its flag)
 * is not there.
 */
export function keptViewOptions(value: unknown): IKeptOptions {
  try {
    return { options: fullViewOptions(value), dropped: [] };
  } catch (error) {
    const saved = typeof value === 'object' && value !== null ? Object.entries(value) : [];
    const view = saved.find(([name]) => name === 'view')?.[1];
    if (!(error instanceof ProtocolError) || typeof view !== 'string' || saved.length > MOST) {
      throw error;
    }
    // What the view cannot do without; everything else is tried alone, beside it.
    const about = fits({ view }) ? ['view'] : ['view', 'flag'];
    const needed = saved.filter(([name]) => about.includes(name));
    const readable = saved.filter(
      ([name, each]) => !about.includes(name) && fits(Object.fromEntries([...needed, [name, each]]))
    );
    const names = new Set([...needed, ...readable].map(([name]) => name));
    return {
      options: fullViewOptions(Object.fromEntries([...needed, ...readable])),
      dropped: saved.map(([name]) => name).filter(name => !names.has(name))
    };
  }
}

function fits(value: unknown): boolean {
  try {
    fullViewOptions(value);
    return true;
  } catch {
    return false;
  }
}
