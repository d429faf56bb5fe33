/** What stands above a view's plot where nothing is unfolded: toolbar, title, a note; pixels. */
const ABOVE = 130;

/**
 * Pixels that a view may take of its frame.
 *
 * What stands above the plot beyond the usual, such as unfolded filters, is taken off.
 *
 * @returns 0 where there is no frame.
 */
export function roomIn(frame: Element | undefined, plot: Element): number {
  if (frame === undefined) {
    return 0;
  }
  const above = plot.getBoundingClientRect().top - frame.getBoundingClientRect().top + frame.scrollTop;
  return frame.clientHeight - Math.max(0, above - ABOVE);
}
