import type { IRecipe } from '../charts';
import type { IState } from './states';

/** What a view found to draw. */
export interface IContent {
  recipe: IRecipe;
  /** Plots above one another, which share the height; 1 unless told. */
  rows?: number;
  /** What the data cover, for zooming. */
  extent: { x: readonly [number, number]; y: readonly [number, number] };
  title: string;
  /** Everything that is not literal, a sentence each. */
  caption: readonly string[];
  summary: string;
  /** Hue beside the title. */
  swatch?: string;
}

/** A picture, or why there is none. */
export type Loaded = { content: IContent } | { state: IState };

/** What is marked, in the units of the axes: a cell, or with `y` null a whole column. */
export interface IMark {
  /** Field and value of the facet that it lies in; null where there is one plot. */
  facet: readonly [string, unknown] | null;
  x: readonly [number, number];
  y: readonly [number, number] | null;
}

/** What a key did to the cursor: what to say, what to mark, and what to put on the clipboard. */
export interface IMoved {
  said: string;
  mark: IMark;
  copy?: string;
}
