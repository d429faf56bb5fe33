import type { IPlotFrame, IRecipe } from '../../charts';
import type { IState } from './states';
import type { ILegend } from '../kits/lines/legend';
import type { ITable } from './table';

interface IPixels {
  readonly width: number;
  readonly height: number;
}

/** Widen one axis of an extent about its middle until a unit is as long across as down. */
export function squareExtent({ x, y }: IContent['extent'], { width, height }: IPixels): IContent['extent'] {
  if (!(width > 0 && height > 0)) {
    return { x, y };
  }
  const unit = Math.max((x[1] - x[0]) / width, (y[1] - y[0]) / height);
  const about = ([low, high]: readonly [number, number], pixels: number): readonly [number, number] => {
    const [middle, half] = [(low + high) / 2, (unit * pixels) / 2];
    return [middle - half, middle + half];
  };
  return { x: about(x, width), y: about(y, height) };
}

/** Corners of a loop in the order in which they were drawn; the last is joined to the first. */
export type Loop = readonly (readonly [x: number, y: number])[];

/**
 * Whether a point lies within a loop: one that is surrounded twice, where the loop crosses itself, does not.
 */
export function isInLoop(loop: Loop, x: number, y: number): boolean {
  let isInside = false;
  let before = loop[loop.length - 1];
  for (const corner of loop) {
    if (before) {
      const [[x0, y0], [x1, y1]] = [before, corner];
      // Each end of a side belongs to one side only, so that a corner is not counted twice.
      if (y0 > y !== y1 > y && x < x0 + ((y - y0) / (y1 - y0)) * (x1 - x0)) {
        isInside = !isInside;
      }
    }
    before = corner;
  }
  return isInside;
}

export interface IContent {
  /** Null where `body` is all that is shown. */
  recipe: IRecipe | null;
  /**
   * The same for the plot that came out, where it was made for one of another size; null where it fits. Asked
   * once after each drawing.
   */
  refit?: (frame: IPlotFrame) => IRecipe | null;
  /**
   * The same for an exported picture, where the page draws it in a way of its own; in the colours of a dark
   * page if asked.
   */
  printed?: (dark?: boolean) => IRecipe;
  /** The names of the lines, where the page writes them: an exported picture has its own. */
  legend?: ILegend;
  /** A table, which is shown instead of a picture. */
  body?: ITable;
  /** Sentences and numbers, which are shown instead of a picture, or below it. */
  brief?: IBrief;
  /** What to know about the picture and to act on, above it. */
  notes?: readonly INote[];
  /** Plots above one another, which share the height; 1 unless told. */
  rows?: number;
  /** The whole x axis in small, above the picture. */
  minimap?: IMinimap;
  /** What keys and drags do, in a line below the picture. */
  keys?: string;
  /** What the data cover, for zooming. */
  extent: { x: readonly [number, number]; y: readonly [number, number] };
  /** What is shown of the x axis until someone zooms; all of it where absent. */
  home?: readonly [number, number];
  /** A unit is as long across as down: the extent grows along one axis until it has the shape of the plot. */
  isSquare?: true;
  title: string;
  /** Everything that is not literal, a sentence each. */
  caption: readonly string[];
  summary: string;
  /** Hue of the mark before the title. */
  swatch?: string;
}

/** A content that is a table alone, without its words. */
export const tableOnly = (body: ITable): Pick<IContent, 'body' | 'extent' | 'recipe'> => ({
  ...{ recipe: null, body },
  extent: { x: [0, 1], y: [0, 1] }
});

/** The whole of the x axis, of which a window is shown. */
export interface IMinimap {
  /** What the window is, for who does not see it. */
  readonly label: string;
  /** All that there is, and what of it was read. */
  readonly extent: readonly [number, number];
  readonly read: readonly [number, number];
  /** Parts of each column of what was read, 0 to 1, above one another; another list where they changed. */
  readonly layers: readonly { readonly color: string; readonly parts: Float64Array }[];
  words(shown: readonly [number, number]): string;
  /** What was not read is wanted; absent where all was. */
  beyond?(wanted: readonly [number, number]): void;
}

interface INoteAction {
  label: string;
  run: () => void;
  isDisabled?: boolean;
}

/** A sentence with an action, or several. */
export interface INote {
  text: string;
  /** Also in still pictures: in the colour of non-finite values, or plain. */
  tone?: 'finding' | 'nonfinite';
  action: INoteAction;
  more?: readonly INoteAction[];
}

/** A sentence that may lead somewhere. */
export interface IBriefLine {
  readonly text: string;
  /** What stands before it, such as its step. */
  readonly lead?: string;
  readonly tone?: 'critical' | 'warning';
  /** Makes the sentence a link. */
  readonly run?: () => void;
  /** A button behind it. */
  readonly action?: { readonly label: string; readonly run: () => void | Promise<void> };
}

/** A number with its name. */
export interface IBriefFact {
  readonly name: string;
  readonly value: string;
  readonly title?: string;
  readonly warns?: boolean;
}

/** A bar that is divided into pieces. */
export interface IBriefBar {
  /** What the bar is; it stands over it. */
  readonly name: string;
  readonly pieces: readonly {
    readonly name: string;
    /** What it comes to, in words. */
    readonly value: string;
    /** Its length, in any unit. */
    readonly size: number;
    readonly color: string;
  }[];
  /** Whether its pieces are named below it; otherwise their names are seen under the pointer. */
  readonly isKeyed: boolean;
}

/** What can be said without a picture: each part is left out where it is absent. */
export interface IBrief {
  readonly lines?: readonly IBriefLine[];
  readonly bars?: readonly IBriefBar[];
  readonly facts?: readonly IBriefFact[];
  /** A text that the run wrote; what it was given stands before it. */
  readonly quote?: { readonly given: string; readonly text: string };
}

/** A picture, or why there is none. */
export type Loaded = { content: IContent } | { state: IState };

/** What is marked, in the units of the axes: a cell, or with `y` null a whole column. */
export interface IMark {
  /** Field and value of the facet that it lies in; null where there is one plot. */
  facet: readonly [string, unknown] | null;
  x: readonly [number, number];
  y: readonly [number, number] | null;
  /** Freehand within them, where a loop was drawn. */
  loop?: Loop;
  /** How strongly it is lit, 0 to 1, where several are; 1 unless told. */
  strength?: number;
}

/** What a key did to the cursor: what to say, what to mark, and what to put on the clipboard. */
export interface IMoved {
  said: string;
  mark: IMark;
  copy?: string;
  /** What to say when the value that was asked for is here. */
  later?: Promise<string>;
}
