/** How points of a plane are turned so that they lie as near as can be to others. */
export interface ITurn {
  /** Row-major 2 × 2, orthogonal: a point as a row times it is turned. */
  readonly matrix: readonly [number, number, number, number];
  /** Degrees from -180 to 180, of the turn that is left when it is mirrored first. */
  readonly degrees: number;
  readonly mirrored: boolean;
  /**
   * What is left: the sum of squared distances after both were put about their mean and scaled to a size of 1, as `scipy.spatial.procrustes` has it. 0 is the same
   * shape, 1 has nothing in common.
   */
  readonly residual: number;
}

const STAYS: ITurn = { matrix: [1, 0, 0, 1], degrees: 0, mirrored: false, residual: 0 };

/**
 * Turn, and mirror where that is better, points onto others: the orthogonal Procrustes problem (Schönemann, Psychometrika 31, 1966), which in a plane is solved by an
 * angle. Sizes are left as they are.
 *
 * @param points - `[n, 2]`, row-major.
 * @param onto - The same points elsewhere. Pairs of which one is NaN do not count.
 */
export function turnOnto(points: Float64Array, onto: Float64Array): ITurn {
  const [from, to] = [aboutMean(points, onto), aboutMean(onto, points)];
  let [xx, xy, yx, yy, sizeFrom, sizeTo] = [0, 0, 0, 0, 0, 0];
  for (let at = 0; at < from.length; at += 2) {
    const [x, y, u, v] = [from[at]!, from[at + 1]!, to[at]!, to[at + 1]!];
    xx += x * u;
    xy += x * v;
    yx += y * u;
    yy += y * v;
    sizeFrom += x * x + y * y;
    sizeTo += u * u + v * v;
  }
  if (sizeFrom === 0 || sizeTo === 0) {
    return STAYS;
  }
  // What a turn and what a mirror with a turn would reach of the trace of the product.
  const turned = Math.sqrt((xx + yy) ** 2 + (xy - yx) ** 2);
  const mirroredToo = Math.sqrt((xx - yy) ** 2 + (xy + yx) ** 2);
  const mirrored = mirroredToo > turned * (1 + 1e-12);
  const reach = mirrored ? mirroredToo : turned;
  if (reach === 0) {
    return { ...STAYS, residual: 1 };
  }
  const [cosine, sine] = mirrored
    ? [(xx - yy) / reach, (xy + yx) / reach]
    : [(xx + yy) / reach, (xy - yx) / reach];
  return {
    // Mirrored: y changes its sign first.
    matrix: mirrored ? [cosine, sine, sine, -cosine] : [cosine, sine, -sine, cosine],
    degrees: (Math.atan2(sine, cosine) * 180) / Math.PI,
    mirrored,
    residual: Math.max(0, 1 - reach ** 2 / (sizeFrom * sizeTo))
  };
}

/** Turn points about the origin. */
export function turned(points: Float64Array, { matrix: [a, b, c, d] }: ITurn): Float64Array {
  const found = new Float64Array(points.length);
  for (let at = 0; at < points.length; at += 2) {
    const [x, y] = [points[at]!, points[at + 1]!];
    found[at] = x * a + y * c;
    found[at + 1] = x * b + y * d;
  }
  return found;
}

/** Those points that are known in both layouts, about their mean. */
function aboutMean(points: Float64Array, other: Float64Array): Float64Array {
  const known: number[] = [];
  let [x, y] = [0, 0];
  for (let at = 0; at < points.length; at += 2) {
    if (Number.isFinite(points[at]! + points[at + 1]! + other[at]! + other[at + 1]!)) {
      known.push(at);
      x += points[at]!;
      y += points[at + 1]!;
    }
  }
  return Float64Array.from(
    known.flatMap(at => [points[at]! - x / known.length, points[at + 1]! - y / known.length])
  );
}
