import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import type { Translate } from './shared/translate';

/** Options of a view of another package, checked, with every default. */
export type OtherOptions = Readonly<Record<string, unknown>>;

/** What a view of another package is given beside its node, run and options. */
export interface IOtherHost {
  readonly translate: Translate;
  /** Change options from within the view: they are checked, kept, and come back through `update`. */
  choose(changes: OtherOptions): void;
}

/** A view of another package, mounted. */
export interface IOtherMounted {
  /** Draw other options; resolves when they are drawn. */
  update(options: OtherOptions): void | Promise<void>;
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

/** The other runs that a view may compare with. */
export interface IViewRuns {
  /** Every run that there is, newest first. */
  list(): Promise<readonly { readonly id: string; readonly name: string }[]>;
  /** Share in a run's source until the share is disposed of. */
  acquire(id: string): Promise<{ readonly source: IRunSource; dispose(): void }>;
}

/** What a host may give a view. All of it is optional. */
export interface IViewHost {
  translate?: Translate;
  /** Opens the report dialogue for a view; the menu entry is there only with it. */
  exportReport?: (options: ViewOptions) => void;
  /**
   * Python that opens the run in copied code, which then stands alone; without it code names the variable
   * `run`.
   */
  opening?: string;
  /** Shows another view of the run; what leads to one is a link only with it. */
  openView?: (options: ViewOptions) => void;
  /** Opens the recording of a run that is gone; the action is offered only with it. */
  openRecording?: () => void;
  /** How charts are drawn; `canvas` unless told. */
  renderer?: 'canvas' | 'svg';
  /** Other runs; comparing is offered only with them. */
  runs?: IViewRuns;
  /** The element whose height a picture may fill; without it pictures keep their usual height. */
  frame?: Element | undefined;
}

/** A mounted view: what a tab, a cell and a report hold. */
export interface IView<O extends ViewOptions = ViewOptions> extends IDisposable {
  readonly node: HTMLElement;
  readonly options: Readonly<Required<O>>;
  /** Emitted with the new options whenever they change, by the user or through `update`. */
  readonly changed: ISignal<IView<O>, Readonly<Required<O>>>;
  /** Change options; resolves when the change is drawn. */
  update(options: Partial<O>): Promise<void>;
  /** Resolves when everything asked so far is drawn. */
  settled(): Promise<void>;
  /** What the picture shows, in words. */
  summary(): string;
  /** The picture with title and caption. Rejects when there is none. */
  toSVG(): Promise<string>;
}
