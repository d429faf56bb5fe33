import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { IViewModel } from '../shared/definition';
import type { Translate } from '../shared/translate';
import type { IViewEnvironment } from '../shared/view-model';

/** What a tile knows of the page that it is on. */
export interface ITilePage {
  /** What shows a view of the run, with a step pinned where one is given; undefined where nobody can. */
  to(options: ViewOptions, step?: number): (() => void) | undefined;
}

/** One tile of the page that shows a run at a glance. */
export interface ITile {
  /** Tells tiles apart; small letters. */
  readonly id: string;
  /** Its place among the others, from 0. */
  readonly order: number;
  /** Its heading, in English. */
  readonly title: string;
  /** The view that its heading opens; absent where there is none. */
  readonly opens?: ViewOptions;
  /** Whether it takes a whole row; it then has one only while it has something to show. */
  readonly isWide?: boolean;
  create(source: IRunSource, env: IViewEnvironment, page: ITilePage): IViewModel;
}

/** The subject of all news of values that are not finite: of a step they have one cause. */
export const NOT_FINITE = 'not finite';

/** Something out of the ordinary. */
export interface INews {
  readonly step: number;
  /** What it is about: of the same step and subject one is told. */
  readonly subject: string;
  readonly text: string;
  readonly tone: 'critical' | 'warning';
  /** The view that shows it. */
  readonly opens: ViewOptions;
}

/** What was found, and what was looked for, in words: `slow ranks`. */
export interface IFound {
  readonly news: readonly INews[];
  readonly looked: readonly string[];
}

export interface ITiles {
  readonly tiles: readonly ITile[];
  /** Streams whose rows may be news. */
  readonly streams: readonly string[];
  /** Looks for what is out of the ordinary; absent where nothing is looked for. */
  readonly look?: (source: IRunSource, t: Translate, signal: AbortSignal) => Promise<IFound>;
}

export type LoadTiles = () => Promise<ITiles>;

const loads: LoadTiles[] = [];

/** Have the page of every run hold more tiles, and tell more news. */
export function addTiles(load: LoadTiles): void {
  loads.push(load);
}

/** All that was added; what cannot be loaded is left out, and tried again the next time. */
export async function addedTiles(): Promise<readonly ITiles[]> {
  const found = await Promise.allSettled(loads.map(load => load()));
  return found.flatMap(each => (each.status === 'fulfilled' ? [each.value] : []));
}
