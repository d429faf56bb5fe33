import { binsOf, spanOfBin } from '../../aggregate';
import type { ITensorRow } from '../../store/tensor-data';

export const BINS = 128;
const COMPRESSOR = `Histogram(bins=${BINS}, log=True, tiles=1, limit=1.0)`;
const bins = binsOf(COMPRESSOR)!;

/** A row of the histogram of some values, counted by looking at every bin. */
export function histogramRow(
  step: number,
  values: readonly number[],
  of: Partial<ITensorRow> = {}
): Partial<ITensorRow> {
  const counts = new Float32Array(2 * BINS + 1);
  const finite = values.filter(Number.isFinite);
  for (const value of finite) {
    const bin = counts.findIndex((_, at) => {
      const [low, high] = spanOfBin(bins, at);
      return at === BINS
        ? value > low && value < high
        : at > BINS
          ? value >= low && value < high
          : value > low && value <= high;
    });
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  const nanCount = values.filter(Number.isNaN).length;
  return {
    ...{ step, layer: 0, shape: [1, 1, 2 * BINS + 1], values: counts, compressor: COMPRESSOR },
    ...{ nanCount, infCount: values.length - finite.length - nanCount },
    whole: {
      ...{ count: finite.length, mean: NaN, m2: NaN, m3: NaN, m4: NaN },
      ...{ min: Math.min(...finite), max: Math.max(...finite) }
    },
    ...of
  };
}
