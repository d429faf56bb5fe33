import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { IViewRuns } from '../view';
import type { Control } from './control';
import type { Translate } from './translate';
import type { IViewEnvironment, ViewModel } from './view-model';

/** A view could not do what was asked; the message says what was expected, what came and what to try. */
export class ViewError extends Error {
  override readonly name = 'ViewError';
}

/** What hosts ask of the picture of a view, whatever its options are. */
export type IViewModel = Pick<ViewModel, keyof ViewModel>;

export type Create<O extends object = ViewOptions> = (
  source: IRunSource,
  env: IViewEnvironment<O>
) => IViewModel;

/**
 * What the folder of a view gives, as `view` of its `index.ts`: how its picture is made, or how it is
 * composed of several. None of it touches the page: `mount/` shows it there, `still.ts` reads it without.
 */
export type IViewDefinition<O extends object = ViewOptions> =
  | { readonly create: Create<O> }
  | { readonly compose: (source: IRunSource, env: ICompositionEnvironment<O>) => IComposition };

/** What a composition knows of where it is shown. */
export interface ICompositionEnvironment<O extends object = ViewOptions> {
  readonly t: Translate;
  readonly options: Readonly<Required<O>>;
  /** Other runs; null where there is one only. */
  readonly runs: IViewRuns | null;
  /** Shows another view of the run; null where nobody can. */
  readonly openView: ((options: ViewOptions) => void) | null;
  /** The tab that it may fill; null where it is as high as what it shows. */
  readonly frame: Element | null;
  /** Whether it is drawn without a page. */
  readonly isStill: boolean;
  /** Whether the page is dark. */
  readonly isDark: boolean;
  choose(options: Partial<O>): void;
  relayout(): void;
  rearrange(): void;
  /**
   * Draw the parts again: their size changed, or there is more to read. `now`: a person waits for it, also
   * where it is out of sight.
   */
  refresh(now?: boolean): void;
}

export interface IViewPart {
  /** Tells parts apart; where the keys of a layout stay, its parts are kept and given their new options. */
  readonly key: string;
  /** CSS class of the element that holds it. */
  readonly className: string;
  readonly options: Required<ViewOptions>;
  /** Whether it is left out of exported pictures, being none. */
  readonly unpictured?: boolean;
  /** What stands over it; a button where it leads somewhere. */
  readonly heading?: { readonly text: string; readonly hint?: string; readonly open?: () => void };
  /** Least time between two drawings that the run asks for, ms. */
  readonly every?: number;
  /** Whether it is made once it comes into sight: one of very many. */
  readonly isLazy?: boolean;
  create(source: IRunSource, env: IViewEnvironment): IViewModel;
}

/** A line between parts that folds those which follow it. */
export interface IFoldLine {
  readonly key: string;
  readonly text: string;
  readonly isFolded: boolean;
  fold(): void;
}

export const isPart = (each: IViewPart | IFoldLine): each is IViewPart => 'create' in each;

/** Several pictures of a run under one toolbar, without the page around them. */
export interface IComposition {
  readonly className: string;
  /** Key of the part whose zoom the menu means; null where it means none. */
  readonly zoomed: string | null;
  /** Whether it gives its parts their heights; otherwise they fill the tab together. */
  readonly isLaidOut?: boolean;
  /** What to say where no part has a picture to export. */
  readonly unpictured: string;
  /** Learn what the layout depends on; absent where it depends on the options alone. */
  prepare?(): Promise<void>;
  /** What is shown, from top to bottom. */
  layout(): readonly (IViewPart | IFoldLine)[];
  /** Whether a part is shown, by which of them have something to show. */
  shows(key: string, isDrawn: (key: string) => boolean): boolean;
  /** A part chose options of its own; return what that means for the whole. */
  heard(key: string, options: Partial<ViewOptions>): Partial<ViewOptions>;
  drawn?(key: string, isDrawn: boolean): void;
  /**
   * The controls of the toolbar, made of those of the parts, and of a second line that folds.
   * @param of The controls of a part; empty before it was drawn.
   */
  controls(of: (key: string) => readonly Control[]): {
    readonly main: readonly Control[];
    readonly folded?: { readonly label: string; readonly controls: readonly Control[] | null };
  };
  /** The rows that are shown as code for arquero; absent where there is none. */
  arquero?(): Promise<string>;
  dispose?(): void;
}
