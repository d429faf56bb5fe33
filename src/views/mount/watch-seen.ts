/**
 * Call back when an element comes into sight or goes out of it: behind another tab, scrolled away, in a folded cell. Where the page cannot tell,
 * everything counts as seen.
 *
 * @returns What ends it.
 */
export function watchSeen(element: Element, changed: (isSeen: boolean) => void): () => void {
  if (typeof IntersectionObserver !== 'function') {
    return () => undefined;
  }
  // A little before it is reached by scrolling, so that its picture is there by then.
  const observer = new IntersectionObserver(
    entries => changed(entries[entries.length - 1]?.isIntersecting ?? true),
    { rootMargin: '100px' }
  );
  observer.observe(element);
  return () => observer.disconnect();
}
