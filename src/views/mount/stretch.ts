/** What stands above and below the plots of a view: toolbar, title, axis, caption; pixels. */
const AROUND = 190;
/** What stands between two rows of plots, pixels. */
const BETWEEN = 40;
/** A picture grows in steps, so that dragging a border does not draw it anew all the time. */
const STEP = 20;
/** Past this many times its usual height a picture says no more. */
const MOST = 2.2;

/**
 * The height of each row of plots that fills a frame.
 *
 * @param usual - Pixels of a row where there is no frame; never less than this.
 * @param rows - Plots above one another.
 * @param frame - Pixels that the whole view may take; 0 where it has no frame.
 */
export function stretch(usual: number, rows: number, frame: number): number {
  const room = (frame - AROUND - (rows - 1) * BETWEEN) / rows;
  return Math.max(usual, Math.min(Math.floor(room / STEP) * STEP, Math.round(usual * MOST)));
}
