import type { Chart, IPlotFrame } from '../../charts';

/** A rectangle in pixels of the stage. */
export interface IBox {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Return a plot's rectangle in pixels of the stage. */
export function frameBox(frame: IPlotFrame, chart: Chart, stage: HTMLElement): IBox {
  const [origin, base] = [chart.origin(), stage.getBoundingClientRect()];
  return {
    left: origin.left - base.left + frame.left,
    top: origin.top - base.top + frame.top,
    width: frame.width,
    height: frame.height
  };
}

/** What has the focus in a node's document or, as where marimo puts widgets, in its shadow tree. */
export function focusNear(node: Node): Element | null {
  const root = node.getRootNode();
  return root instanceof ShadowRoot ? root.activeElement : document.activeElement;
}

/**
 * Call back when an element becomes wider or narrower, or a frame around it higher or lower; never where the
 * page has no layout. Returns what ends it.
 */
export function watchSize(element: Element, frame: Element | undefined, changed: () => void): () => void {
  if (typeof ResizeObserver !== 'function') {
    return () => undefined;
  }
  const watch = (node: Element, read: () => number, before: number): ResizeObserver => {
    const observer = new ResizeObserver(() => {
      if (read() > 0 && read() !== before) {
        before = read();
        changed();
      }
    });
    observer.observe(node);
    return observer;
  };
  const observers = [watch(element, () => element.clientWidth, 0)];
  if (frame) {
    observers.push(watch(frame, () => frame.clientHeight, frame.clientHeight));
  }
  return () => observers.forEach(observer => observer.disconnect());
}

/** At most so often a page is asked again whether something is in sight, ms. */
const ASKED = 2000;

export interface ISeen {
  /** Have the page say once more whether the element is in sight: it may have missed that it came. */
  ask(): void;
  end(): void;
}

/**
 * Call back when an element comes into sight or goes out of it: behind another tab, scrolled away, in a
 * folded cell. Where the page cannot tell, everything counts as seen.
 */
export function watchSeen(element: Element, changed: (isSeen: boolean) => void): ISeen {
  if (typeof IntersectionObserver !== 'function') {
    return { ask: () => undefined, end: () => undefined };
  }
  // A little before it is reached by scrolling, so that its picture is there by then.
  const observer = new IntersectionObserver(
    entries => changed(entries[entries.length - 1]?.isIntersecting ?? true),
    { rootMargin: '100px' }
  );
  observer.observe(element);
  let asked = performance.now();
  return {
    ask: () => {
      if (performance.now() - asked >= ASKED) {
        asked = performance.now();
        // Whatever is observed anew is told of once.
        observer.unobserve(element);
        observer.observe(element);
      }
    },
    end: () => observer.disconnect()
  };
}

/** Make an element with attributes and children; `class` takes the CSS class, text children become text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/**
 * Give an element another text. One that it has already is left: written again, the browser would lay it out
 * again.
 */
export function writeText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export async function copyText(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
}

export function saveText(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  saveFile(name, url);
  URL.revokeObjectURL(url);
}

export function saveFile(name: string, url: string): void {
  const link = element('a', { href: url, download: name });
  link.click();
}
