import { runLabel } from '../client/run-reader';
import type { IRunSource } from '../store/source';
import type { IViewRuns } from '../views/view';

/** One sentence instead of a view, and what can be done about it. */
export interface IOutputNotice {
  readonly sentence: string;
  /** What exactly went wrong, in smaller letters. */
  readonly detail?: string;
  readonly actions?: readonly { readonly label: string; run(): void }[];
  /** SVG text of the picture that was saved with the notebook. */
  readonly picture?: string | null;
  /** What a screen reader says for the picture. */
  readonly alt: string;
}

export function notice({ sentence, detail, actions = [], picture, alt }: IOutputNotice): HTMLElement {
  const node = document.createElement('div');
  node.className = 'jp-MegalensState jp-MegalensCellView-notice';
  node.setAttribute('role', 'status');
  const words = document.createElement('p');
  words.textContent = sentence;
  node.append(words);
  if (detail) {
    const small = document.createElement('small');
    small.textContent = detail;
    node.append(small);
  }
  for (const action of actions) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'jp-Button jp-mod-styled jp-mod-minimal';
    button.textContent = action.label;
    button.addEventListener('click', () => action.run());
    node.append(button);
  }
  for (const root of rootsOf(picture ?? '')) {
    // As an image the saved SVG can neither run a script nor load anything.
    const image = document.createElement('img');
    image.alt = alt;
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(root)}`;
    node.append(image);
  }
  return node;
}

/**
 * The documents of a saved picture: a view of several parts has one for each, and an image shows one only.
 */
function rootsOf(picture: string): string[] {
  const roots: string[] = [];
  let [open, root] = [0, ''];
  for (const part of picture.split(/(?<=<\/svg>)/)) {
    open += part.split('<svg').length - 2;
    root += part;
    if (open <= 0) {
      roots.push(root);
      [open, root] = [0, ''];
    }
  }
  return roots.filter(each => each.includes('<svg'));
}

/** The runs as a view offers them: those of one name told apart. */
export function offered(runs: IWidgetRuns): IViewRuns {
  return {
    list: async () => (await runs.list()).map(run => ({ id: run.id, name: runLabel(run) })),
    acquire: id => runs.acquire(id)
  };
}

/** What the widgets need of the page's run service (`IMegalensRuns` fits as it is). */
export interface IWidgetRuns {
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

/**
 * Puts a text of the user interface into the user's language. JupyterLab's `TranslationBundle` fits as it is.
 */
export interface IWords {
  __(text: string, ...values: string[]): string;
}

/** English, for hosts without a translator. */
export const ENGLISH: IWords = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, index: string) => values[Number(index) - 1] ?? '')
};
