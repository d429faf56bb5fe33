/** Corners of a loop in the order in which they were drawn; the last is joined to the first. */
export type Loop = readonly (readonly [x: number, y: number])[];

/** Whether a place lies within a loop: one that is surrounded twice, where the loop crosses itself, does not. */
export function isInLoop(loop: Loop, x: number, y: number): boolean {
  let isInside = false;
  let before = loop[loop.length - 1];
  for (const corner of loop) {
    if (before) {
      const [[x0, y0], [x1, y1]] = [before, corner];
      // Each end of a side belongs to one side only, so that a corner is not counted twice.
      if (y0 > y !== y1 > y && x < x0 + ((y - y0) / (y1 - y0)) * (x1 - x0)) {
        isInside = !isInside;
      }
    }
    before = corner;
  }
  return isInside;
}
