import { inRanges } from '../protocol/ranges';
import type { ITensorRow } from '../store/tensor-data';

/** Logarithmic bins begin at 2^LEAST, span so many octaves, and end at a whole part of them. */
const [LEAST, OCTAVES, PARTS] = [-40, 64, 2 ** 20];
const TEXT = /^Histogram\(bins=(\d+), log=(True|False), tiles=(\d+), limit=([^,)]+)\)$/;
const MOST_BINS = 1024;

/** Fixed bins of values: `count` of each sign about one for zero, the middle. */
export interface IBins {
  readonly count: number;
  readonly log: boolean;
  /** Where the bins of positive values begin, and where the last one nominally ends. */
  readonly edges: Float64Array;
}

/** Counts of values by bin at one step. */
export interface IStepCounts {
  readonly step: number;
  readonly counts: Float64Array;
  readonly total: number;
  /** NaN and infinite values of the tensors that entered. */
  readonly nonFinite: number;
  /** Least and greatest value of these tensors; NaN where they are not known. */
  readonly extremes: readonly [number, number];
}

export interface IHistograms {
  readonly bins: IBins;
  readonly compressor: string;
  readonly tiles: number;
  /** Ascending. */
  readonly steps: readonly IStepCounts[];
  /** Rows that were compressed in another way. */
  readonly others: number;
}

/** The bins of a compressor by its canonical text; null where it makes no histogram. */
export function binsOf(compressor: string): IBins | null {
  const found = TEXT.exec(compressor);
  const [count, limit] = [Number(found?.[1]), Number(found?.[4])];
  if (!found || !(count >= 1 && count <= MOST_BINS) || !(limit > 0)) {
    return null;
  }
  const log = found[2] === 'True';
  const edges = Float64Array.from({ length: count + 1 }, (_, k) => {
    const at = (Math.ceil((k * PARTS) / count) * OCTAVES) / PARTS;
    return log ? 2 ** (LEAST + Math.floor(at)) * (1 + (at % 1)) : (limit * k) / count;
  });
  return { count, log, edges };
}

/** Where a bin begins and ends. Of zero in bins of one width both are 0. The outermost bins are open. */
export function spanOfBin({ count, log, edges }: IBins, bin: number): readonly [number, number] {
  const from = Math.abs(bin - count) - 1;
  if (from < 0) {
    const end = log ? (edges[0] ?? 0) : 0;
    return [-end, end];
  }
  const [low, high] = [edges[from] ?? NaN, from === count - 1 ? Infinity : (edges[from + 1] ?? NaN)];
  return bin > count ? [low, high] : [-high, -low];
}

/**
 * Add up the histograms of rows by step: of all their samples, micro-batches, layers and ranks. Fixed bins
 * make that exact.
 *
 * @param tiles - Tiles that enter, such as `0-3,7`, or `all`.
 * @returns Null where no row is a histogram. Where there are several kinds, that of the newest row.
 */
export function histogramsOf(rows: readonly ITensorRow[], tiles = 'all'): IHistograms | null {
  const newest = [...rows]
    .reverse()
    .find(({ compressor, values }) => values.length > 0 && binsOf(compressor));
  const bins = newest && binsOf(newest.compressor);
  if (!bins) {
    return null;
  }
  const width = 2 * bins.count + 1;
  const isOne = ({ compressor, values, shape }: ITensorRow): boolean =>
    compressor === newest.compressor && values.length > 0 && shape[2] === width;
  const kept = rows.filter(isOne);
  const places = new Map(
    [...new Set(kept.map(({ step }) => step))].sort((a, b) => a - b).map((s, at) => [s, at])
  );
  // One block of memory: 100,000 small ones keep a page busy with collecting them.
  const all = new Float64Array(places.size * width);
  const steps = [...places].map(([step, at]) => ({
    step,
    total: 0,
    nonFinite: 0,
    counts: all.subarray(at * width, (at + 1) * width),
    extremes: [Infinity, -Infinity] as [number, number]
  }));
  let [most, chosen] = [0, [] as readonly number[]];
  for (const row of kept) {
    const of = steps[places.get(row.step) ?? -1]!;
    const [samples = 0, each = 0] = row.shape;
    if (each > most) {
      most = each;
      chosen = inRanges(
        tiles,
        Array.from({ length: each }, (_, tile) => tile)
      );
    }
    const { values } = row;
    for (let sample = 0; sample < samples; sample++) {
      for (const tile of chosen) {
        if (tile >= each) {
          break;
        }
        const at = (sample * each + tile) * width;
        for (let bin = 0; bin < width; bin++) {
          const count = values[at + bin] ?? 0;
          if (count !== 0) {
            of.counts[bin] = (of.counts[bin] ?? 0) + count;
            of.total += count;
          }
        }
      }
    }
    of.nonFinite += row.nanCount + row.infCount;
    const { min = NaN, max = NaN } = row.whole ?? {};
    of.extremes = [Math.min(of.extremes[0], min), Math.max(of.extremes[1], max)];
  }
  return { bins, compressor: newest.compressor, tiles: most, steps, others: rows.length - kept.length };
}

/** A value, and how far the true one may be from it. */
export interface IQuantile {
  readonly value: number;
  readonly error: number;
}

/**
 * The least value that a share of all does not exceed. Which bin holds it is certain: the middle of the
 * bin is returned, and half its width. An open bin ends at the extreme value of the tensors if that is known.
 */
export function quantileOf(bins: IBins, of: IStepCounts, share: number): IQuantile {
  const wanted = Math.max(1, Math.ceil(share * of.total));
  const { counts } = of;
  let [sum, bin] = [0, -1];
  while (sum < wanted && bin < counts.length - 1) {
    bin++;
    sum += counts[bin]!;
  }
  if (of.total === 0) {
    return { value: NaN, error: NaN };
  }
  const [begin, end] = spanOfBin(bins, bin);
  const [least, greatest] = of.extremes;
  // A bin is no wider than what is known of the values, whose extremes count those that were left out too.
  const low = least > begin ? least : begin;
  const high = greatest < end ? greatest : end;
  const outer = bins.edges[bins.count] ?? NaN;
  return Number.isFinite(low) && Number.isFinite(high)
    ? { value: (low + high) / 2, error: (high - low) / 2 }
    : { value: high > 0 ? outer : -outer, error: Infinity };
}
