import type { IRunSource } from '../store/source';
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
