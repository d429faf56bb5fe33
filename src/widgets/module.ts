import STYLE from 'megalens-style';
import DARK from 'megalens-dark-style';
import { Signal } from '@lumino/signaling';
import { JSONExt, type ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { SLICES } from '../instruments/slices.generated';
import { keptViewOptions } from '../protocol';
import { registerSlices } from '../slice';
import { bind, bindings, type IBoundModel } from './bindings';
import { CommRuns, type ICommModel } from './comm-runs';
import { mountLazily } from './mime';
import { ENGLISH, notice, type IWords } from './runs';
import { readRunReference } from './view-json';
import { ViewHost } from './view-host';
import { translateFrom } from '../views/shared/translate';

/** The kernel's widget, by anywidget's model of it. */
class CommModel implements IBoundModel {
  constructor(private readonly model: ICommModel) {
    model.on('change:options', this.announce);
  }

  readonly optionsChanged: Signal<IBoundModel, void> = new Signal<IBoundModel, void>(this);

  readOptions(): unknown {
    return this.model.get('options');
  }

  writeOptions(options: unknown): void {
    if (!JSONExt.deepEqual(this.readOptions() as Json, options as Json)) {
      this.model.set('options', options);
      this.model.save_changes();
    }
  }

  dispose(): void {
    this.model.off('change:options', this.announce);
    Signal.clearData(this);
  }

  private readonly announce = (): void => this.optionsChanged.emit();
}

type Json = ReadonlyPartialJSONValue;

let shown = 0;

/**
 * Draw a widget's view into a node of whatever page: the view of JupyterLab's cells, with runs over the comm.
 *
 * @returns What ends it.
 */
async function render({ model, el }: { model: ICommModel; el: HTMLElement }): Promise<() => void> {
  const holder = document.createElement('div');
  holder.className = 'jp-MegalensAlone jp-MegalensCell';
  const endTheme = followTheme(el, holder);
  el.append(holder);
  let host: ViewHost;
  let waiting: HTMLElement | null = null;
  const runs = new CommRuns(model, isLate => {
    waiting?.remove();
    const sentence = words.__(
      'Waiting for the kernel, which has the rows of this view. It is busy, or gone: then run the cell again.'
    );
    waiting = isLate ? notice({ sentence, alt: '' }) : null;
    holder.prepend(...(waiting ? [waiting] : []));
  });
  let words: IWords = ENGLISH;
  // A view in English is better than none.
  words = { __: translateFrom(await runs.words(navigator.languages).catch(() => ({}))) };
  try {
    const run = readRunReference(model.get('run'));
    host = new ViewHost({ runs, run, ...keptViewOptions(model.get('options')), mount: mountLazily, words });
  } catch (error) {
    holder.append(notice({ sentence: error instanceof Error ? error.message : String(error), alt: '' }));
    return () => (endTheme(), runs.dispose(), el.replaceChildren());
  }
  const bound = new CommModel(model);
  shown += 1;
  const id = `module-${shown}`;
  bindings.add(id, bound);
  const binding = bind(host, id, bindings);
  holder.append(host.node);
  return () => {
    binding.dispose();
    bindings.remove(id, bound);
    bound.dispose();
    host.dispose();
    runs.dispose();
    endTheme();
    el.replaceChildren();
  };
}

/** Put the styles into a node, which may be in a shadow tree, and keep them light or dark as the page is. */
function followTheme(el: HTMLElement, holder: HTMLElement): () => void {
  const [style, dark] = [document.createElement('style'), document.createElement('style')];
  style.textContent = STYLE;
  dark.textContent = DARK;
  el.append(style);
  const follow = (): void => {
    const theme = isDark(el) ? 'dark' : 'light';
    if (holder.dataset['theme'] !== theme) {
      if (theme === 'dark') {
        style.after(dark);
      } else {
        dark.remove();
      }
      holder.dataset['theme'] = theme;
    }
  };
  follow();
  const observer = new MutationObserver(follow);
  for (const node of [document.documentElement, document.body]) {
    observer.observe(node, { attributes: true });
  }
  const system = matchMedia('(prefers-color-scheme: dark)');
  system.addEventListener('change', follow);
  // Pages fade from one theme to the other, and have their node's place in the page only later.
  document.addEventListener('transitionend', follow);
  const placed = requestAnimationFrame(follow);
  return () => {
    observer.disconnect();
    system.removeEventListener('change', follow);
    document.removeEventListener('transitionend', follow);
    cancelAnimationFrame(placed);
  };
}

/** Whether what lies behind a node is dark: the first of it and its parents that has a ground says so. */
function isDark(node: Element): boolean {
  for (let at: Element | null = node; at !== null; at = parentOf(at)) {
    const [red = 0, green = 0, blue = 0, alpha = 1] = channels(getComputedStyle(at).backgroundColor);
    if (alpha > 0.5) {
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5;
    }
  }
  // Of a page without a ground the browser's own is seen.
  return getComputedStyle(document.documentElement).colorScheme.includes('dark')
    ? matchMedia('(prefers-color-scheme: dark)').matches
    : false;
}

function parentOf(node: Element): Element | null {
  const root = node.getRootNode();
  return node.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}

/** Red, green, blue, 0 to 1, and opacity of any colour of CSS, as a canvas draws it. */
function channels(color: string): number[] {
  const context = document.createElement('canvas').getContext('2d');
  if (context === null) {
    return [];
  }
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return Array.from(context.getImageData(0, 0, 1, 1).data, each => each / 255);
}

registerSlices(SLICES);

export default { render };
