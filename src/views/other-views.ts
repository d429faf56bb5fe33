import { addView, type IViewDescriptor } from '../protocol/view-info';
import type { IRunSource } from '../store/source';
import type { IViewDefinition } from './shared/definition';
import type { Translate } from './shared/translate';

/** Options of a view of another package, checked, with every default. */
export type OtherOptions = Readonly<Record<string, unknown>>;

/** What a view of another package is given beside its node, run and options. */
export interface IOtherHost {
  /** The user's language. */
  readonly translate: Translate;
  /** Change options from within the view: they are checked, kept, and come back through `update`. */
  choose(changes: OtherOptions): void;
}

/** A view of another package, mounted. */
export interface IOtherMounted {
  /** Draw other options; resolves when they are drawn. */
  update(options: OtherOptions): void | Promise<void>;
  /** Let go of everything. Safe twice. */
  dispose(): void;
  /** What the picture shows, in words. */
  summary?(): string;
  /** The picture as SVG text; the first `svg` of the node unless told. */
  toSVG?(): Promise<string>;
}

/** The code of a view that draws into a node by itself. */
export interface IMountModule {
  /** Draw into an empty node. Rows are asked of the source; its `changed` tells of new ones. */
  mount(
    node: HTMLElement,
    source: IRunSource,
    options: OtherOptions,
    host: IOtherHost
  ): IOtherMounted | Promise<IOtherMounted>;
}

/**
 * The code of a view of another package: `view` as the views of this package have it, with the same charts, toolbar, tooltips and keys; or
 * `mount`, which draws by itself.
 */
export type IViewModule<O extends object = OtherOptions> =
  { readonly view: IViewDefinition<O> } | IMountModule;

/** The code of any view. */
export type ViewCode = { readonly view: IViewDefinition } | IMountModule;

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

/** How the code of a view of another package is loaded. */
export function loadOther(name: string): (() => Promise<ViewCode>) | undefined {
  return loads.get(name);
}
