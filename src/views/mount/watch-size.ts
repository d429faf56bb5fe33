/**
 * Call back when an element becomes wider or narrower, or a frame around it higher or lower. Does nothing where the page has no layout.
 *
 * @returns What ends it.
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
