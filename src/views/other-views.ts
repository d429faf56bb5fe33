import { addView, bringViews, type ViewName } from '../protocol/view-info';
import type { IViewDescriptor } from '../protocol/view-descriptor';
import type { ViewOptions } from '../protocol/views.generated';
import type { IViewDefinition } from './shared/definition';
import type { IMountModule, OtherOptions } from './view';

/**
 * The code of a view of another package: `view` as the views of this package have it, with the same charts,
 * toolbar, tooltips and keys; or `mount`, which draws by itself.
 */
export type IViewModule<O extends object = OtherOptions> =
  { readonly view: IViewDefinition<O> } | IMountModule;

export type ViewCode = { readonly view: IViewDefinition } | IMountModule;

/** The code of views of this package by their names, loaded when they are first shown. */
export type OwnViews = {
  readonly [K in ViewName]?: () => Promise<{
    readonly view: IViewDefinition<Extract<ViewOptions, { view: K }>>;
  }>;
};

const loads = new Map<string, () => Promise<ViewCode>>();

/**
 * Register a view of another package, whose code is loaded when it is first shown.
 *
 * @returns Takes it back; safe twice.
 * @throws {ProtocolError} When the name is no name, or is taken.
 */
export function registerView<O extends object>(
  descriptor: IViewDescriptor,
  load: () => Promise<IViewModule<O>>
): () => void {
  const remove = addView(descriptor);
  // Its options are checked by the descriptor before the view has them.
  loads.set(descriptor.name, load as () => Promise<ViewCode>);
  return () => {
    remove();
    if (loads.get(descriptor.name) === load) {
      loads.delete(descriptor.name);
    }
  };
}

/**
 * Register views of this package that are not the core's: the contract knows them, and an instrument has
 * their code.
 */
export function registerOwnViews(views: OwnViews): void {
  // A view has options of its own kind, whose names the contract checks.
  Object.entries(views).forEach(([name, load]) => loads.set(name, load as () => Promise<ViewCode>));
  bringViews(Object.keys(views));
}

export function loadOther(name: string): (() => Promise<ViewCode>) | undefined {
  return loads.get(name);
}
