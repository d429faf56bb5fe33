import { runLabel } from '../client/run-labels';
import type { IRunSource } from '../store/source';
import type { IViewRuns } from '../views/view';

/** The runs as a view offers them: those of one name told apart. */
export function offered(runs: IWidgetRuns): IViewRuns {
  return {
    list: async () => (await runs.list()).map(run => ({ id: run.id, name: runLabel(run) })),
    acquire: id => runs.acquire(id)
  };
}

/** What the widgets need of the page's run service (`IMegalensRuns` fits as it is). */
export interface IWidgetRuns {
  /** Every run that the server knows. */
  list(): Promise<
    readonly {
      readonly id: string;
      readonly name: string;
      readonly apart?: string;
      readonly state: 'live' | 'recorded' | 'gone';
    }[]
  >;
  /** Open raw-moment files below the server's root; absent where that cannot be done. */
  openStatistics?(path: string): Promise<unknown>;
  /** Share in a run's source, live or recorded as the server says. */
  acquire(id: string): Promise<{ readonly source: IRunSource; dispose(): void }>;
}

/** Puts a text of the user interface into the user's language. JupyterLab's `TranslationBundle` fits as it is. */
export interface IWords {
  __(text: string, ...values: string[]): string;
}

/** English, for hosts without a translator. */
export const ENGLISH: IWords = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, place: string) => values[Number(place) - 1] ?? '')
};
