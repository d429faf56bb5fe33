import {
  gapStarts,
  quantileOf,
  spanOfBin,
  thinLine,
  type IHistograms,
  type IStepCounts
} from '../../aggregate';
import { COLORS, formatNumber, hexOf, mixed, type IRecipe, type Row } from '../../charts';
import { WHOLE_NUMBERS } from '../kits/lines/line-recipe';
import { StepAxis } from '../kits/lines/step-axis';
import type { IMatrixDrawing } from '../kits/matrix/matrix-picture';
import type { IContent } from '../shared/content';
import { labelledRows } from '../shared/row-places';
import { extentOf, scaleFromZero, wide } from '../shared/scale';
import type { Translate } from '../shared/translate';

/** Most columns of a map: where more steps are, each bin of a column has the greatest share of its steps. */
const MOST_COLUMNS = 1024;
/** About how many points a line of quantiles has at most; none of its extremes is left out. */
const MOST_POINTS = 2000;
/** Most ridges of a picture. */
const MOST_RIDGES = 14;
/** How far the highest ridge reaches over those above it. */
const OVERLAP = 1.8;
/** The sequential scale without its end that is hardly seen on white. */
const HUES = COLORS.sequential.slice(0, -8);
const ROW = { each: 5, least: 220, most: 420 };

/** Quantiles that are drawn as lines, the lowest first. */
export const SHARES = [0.01, 0.25, 0.5, 0.75, 0.99] as const;

export interface IDistributionWish {
  readonly data: IHistograms;
  /** Whether these are one step of each so many, whichever of them departs most. */
  readonly isSampled: boolean;
  readonly transform: 'linear' | 'log';
  /** Lowest and highest share of the colours; null where they follow the shares. */
  readonly range: readonly [number, number] | null;
}

/** What is drawn at one step. */
export interface IDrawnStep extends IStepCounts {
  /** Of several steps that share a column: the greatest share of values that each bin has at any of them. */
  readonly greatest?: Float64Array;
}

/** The share of all values that lies in each bin. */
export const sharesOf = ({ counts, total, greatest }: IDrawnStep): Float64Array =>
  greatest ?? counts.map(count => count / total);

/** The shares of bins that hold a value. */
export const drawnShares = (of: IDrawnStep): Float64Array => sharesOf(of).filter(share => share !== 0);

/** What is drawn of histograms. */
export interface IDrawnBins {
  /** Steps that are drawn: a column of a map, a ridge, or a point of each line. */
  readonly steps: readonly IDrawnStep[];
  /** Least and greatest bin that is drawn. */
  readonly span: readonly [number, number];
}

/** The same as a chart of lines, and what it spans. */
export type IDrawnLines = IDrawnBins & Pick<IContent, 'extent'> & { readonly recipe: IRecipe };

/** The bins that hold a value at any step, with one more on either side. */
function occupied({ bins, steps }: IHistograms): [number, number] {
  const last = 2 * bins.count;
  let [low, high] = [last, 0];
  for (const { counts } of steps) {
    for (let bin = 0; bin < low; bin++) {
      low = (counts[bin] ?? 0) > 0 ? bin : low;
    }
    for (let bin = last; bin > high; bin--) {
      high = (counts[bin] ?? 0) > 0 ? bin : high;
    }
  }
  return [Math.max(0, low - 1), Math.min(last, high + 1)];
}

/** Name the end of a bin that lies farther from zero. */
const binLabel = ({ bins }: IHistograms, bin: number): string => {
  const [low, high] = spanOfBin(bins, bin);
  return bin === bins.count ? '0' : formatNumber(bin > bins.count ? low : high, 2);
};

function columnsOf(
  steps: readonly IStepCounts[],
  isSampled: boolean
): { columns: IDrawnStep[]; spacing: number } {
  const gaps = Float64Array.from(steps.slice(1), ({ step }, at) => step - (steps[at]?.step ?? 0)).sort();
  const [first, last] = [steps[0]?.step ?? 0, steps[steps.length - 1]?.step ?? 0];
  // Of each stretch any step may be the one that was sent.
  const least = gaps[isSampled ? gaps.length >> 1 : 0] ?? 1;
  const spacing = Math.max(least, (last - first) / (MOST_COLUMNS - 1));
  const columns: IDrawnStep[] = [];
  for (const each of steps) {
    const step = first + Math.round((each.step - first) / spacing) * spacing;
    const before = columns[columns.length - 1];
    if (before?.step === step) {
      const greatest = before.greatest ?? sharesOf(before);
      for (let bin = 0; bin < greatest.length; bin++) {
        // A step of which no value is finite says more than any other: Math.max keeps its NaN.
        greatest[bin] = Math.max(greatest[bin] ?? 0, (each.counts[bin] ?? 0) / each.total);
      }
      columns[columns.length - 1] = { ...before, greatest };
    } else {
      if (isSampled && before && step - before.step < 2.5 * spacing) {
        // No steps are missing: the one that was sent lies at the other end of its stretch.
        columns.push(...(step - before.step > 1.5 * spacing ? [{ ...each, step: step - spacing }] : []));
      }
      columns.push({ ...each, step });
    }
  }
  return { columns, spacing };
}

/** The share of values in each bin by step. The greatest values are at the top. */
export function distributionMap(
  { data, isSampled, transform, range }: IDistributionWish,
  t: Translate
): IDrawnBins & { readonly drawing: IMatrixDrawing } {
  const { columns: steps, spacing } = columnsOf(data.steps, isSampled);
  const [low, high] = occupied(data);
  const rows = high - low + 1;
  const first = steps[0]?.step ?? 0;
  const columns = Math.round(((steps[steps.length - 1]?.step ?? 0) - first) / spacing) + 1;
  const values = new Float64Array(rows * columns).fill(NaN);
  const missing = new Uint8Array(rows * columns).fill(1);
  for (const each of steps) {
    const column = Math.round((each.step - first) / spacing);
    const shares = sharesOf(each);
    for (let bin = low; bin <= high; bin++) {
      // A bin that holds nothing is not drawn: among those of a pixel it would say more than a share.
      if (shares[bin] !== 0) {
        const cell = (high - bin) * columns + column;
        values[cell] = shares[bin] ?? NaN;
        missing[cell] = 0;
      }
    }
  }
  const axis = new StepAxis(steps.map(({ step }) => step));
  return {
    steps,
    span: [low, high],
    drawing: {
      cells: { rows, columns, values, missing },
      scaleOf: dark => scaleFromZero([values], transform, { dark, range }),
      template: 'moment-map',
      texts: {
        xTitle: t('step'),
        yTitle: t('value'),
        xLabel: WHOLE_NUMBERS,
        legendTitle: t('share of values')
      },
      ...labelledRows(rows, ROW, row => binLabel(data, high - row)),
      x: [first - spacing / 2, first + (columns - 0.5) * spacing],
      xs: axis.steps,
      width: spacing,
      axis
    }
  };
}

/**
 * The steps that ridges show: of each of so many stretches the one that differs most from the mean of all, so
 * that none with a distribution of its own is left out.
 */
function tellingSteps(all: readonly IStepCounts[], most: number): readonly IStepCounts[] {
  if (all.length <= most) {
    return all;
  }
  const mean = new Float64Array(all[0]?.counts.length ?? 0);
  for (const { counts, total } of all) {
    const weight = 1 / Math.max(1, total) / all.length;
    for (let bin = 0; bin < mean.length; bin++) {
      mean[bin]! += counts[bin]! * weight;
    }
  }
  const differs = all.map(({ counts, total }) => {
    const weight = 1 / Math.max(1, total);
    let sum = 0;
    for (let bin = 0; bin < mean.length; bin++) {
      const apart = counts[bin]! * weight - mean[bin]!;
      sum += apart < 0 ? -apart : apart;
    }
    return sum;
  });
  return Array.from({ length: most }, (_, stretch) => {
    const [from, to] = [stretch, stretch + 1].map(end => Math.floor((end * all.length) / most)) as [
      number,
      number
    ];
    let best = from;
    for (let at = from; at < to; at++) {
      best = (differs[at] ?? 0) > (differs[best] ?? 0) ? at : best;
    }
    return all[best]!;
  });
}

/** The distribution of some steps as lines that stand on their step. */
export function distributionRidges({ data }: IDistributionWish, t: Translate): IDrawnLines {
  const steps = tellingSteps(data.steps, MOST_RIDGES);
  const [low, high] = occupied(data);
  const [first, last] = [steps[0]?.step ?? 0, steps[steps.length - 1]?.step ?? 0];
  const gap = steps.length > 1 ? (last - first) / (steps.length - 1) : 1;
  const bins = Array.from({ length: high - low + 1 }, (_, at) => low + at);
  const shareOf = (of: IStepCounts, bin: number): number =>
    of.total > 0 ? (of.counts[bin] ?? 0) / of.total : 0;
  const greatest = Math.max(...steps.flatMap(of => bins.map(bin => shareOf(of, bin))), 1e-300);
  const lift = (gap * OVERLAP) / greatest;
  const color = (at: number): string => hexOf(mixed(HUES, steps.length > 1 ? at / (steps.length - 1) : 0));
  const rows: Row[] = [];
  const band: Row[] = [];
  steps.forEach((of, line) => {
    for (const bin of bins) {
      const value = of.step + shareOf(of, bin) * lift;
      rows.push({
        ...{ x: bin, line, value, name: t('step %1', of.step), color: color(line) },
        ...{ opacity: 1, dash: [1, 0], alone: false }
      });
      band.push({ x: bin, line, low: of.step, high: value, color: color(line) });
    }
  });
  const every = Math.max(1, Math.ceil(bins.length / 9));
  const labelAt = bins.filter(bin => (bin - data.bins.count) % every === 0);
  const [x0, x1, y0, y1] = [low, Math.max(high, low + 1), first, last + gap * OVERLAP * 1.05];
  return {
    steps,
    span: [low, high],
    extent: { x: [x0, x1], y: [y0, y1] },
    recipe: {
      template: 'lines',
      texts: {
        ...{ xTitle: t('value'), yTitle: t('step'), colorTitle: t('step'), yScale: 'linear' },
        ...{ xTicks: 'labelAt', xLabel: 'labels[indexof(labelAt, datum.value)]' }
      },
      params: {
        ...{ x0, x1, y0, y1, labelAt, mostTicks: 1000, leastStep: 0 },
        labels: labelAt.map(bin => binLabel(data, bin)),
        keyText: steps.map(({ step }) => String(step))
      },
      datasets: { rows, band, key: steps.map((_, place) => ({ place, color: color(place) })) },
      height: 360
    }
  };
}

/** Name a quantile. */
export const shareName = (share: number, t: Translate): string =>
  share === 0.5 ? t('median') : t('%1 % quantile', formatNumber(100 * share));

/** Quantiles over steps, in the band that holds the true one. */
export function distributionQuantiles({ data, transform }: IDistributionWish, t: Translate): IDrawnLines {
  const { steps, bins } = data;
  const color = (at: number): string => hexOf(mixed(HUES, at / (SHARES.length - 1)));
  const rows: Row[] = [];
  const band: Row[] = [];
  const at = Float64Array.from(steps, ({ step }) => step);
  const gaps = gapStarts(at);
  SHARES.forEach((share, line) => {
    const found = steps.map(of => quantileOf(bins, of, share));
    const { kept, starts } = thinLine(
      at,
      Float64Array.from(found, ({ value }) => value),
      gaps,
      MOST_POINTS
    );
    kept.forEach((index, place) => {
      const [x, { value = NaN, error = NaN } = {}] = [at[index] ?? NaN, found[index]];
      if (starts.includes(place)) {
        // Nothing joins what lies on either side of missing steps.
        const between = { x: (x + (at[kept[place - 1] ?? 0] ?? NaN)) / 2, line };
        rows.push({ ...between, value: null, color: color(line) });
        band.push({ ...between, low: null, high: null, color: color(line) });
      }
      rows.push({
        ...{ x, line, value: Number.isFinite(value) ? value : null, name: shareName(share, t) },
        ...{ color: color(line), opacity: 1, dash: [1, 0], alone: steps.length === 1 }
      });
      const [low, high] = Number.isFinite(error) ? [value - error, value + error] : [null, null];
      band.push({ x, line, low, high, color: color(line) });
    });
  });
  const ends = extentOf([
    rows.map(({ value }) => Number(value ?? NaN)),
    band.flatMap(({ low, high }) => [Number(low ?? NaN), Number(high ?? NaN)])
  ]) ?? [0, 1];
  const air = (ends[1] - ends[0]) * 0.05 || Math.abs(ends[0]) * 0.1 || 1;
  const [y0, y1] = [ends[0] - air, ends[1] + air];
  const [first, last] = [steps[0]?.step ?? 0, steps[steps.length - 1]?.step ?? 0];
  const [x0, x1] = wide([first, last]);
  return {
    steps,
    span: occupied(data),
    extent: { x: [x0, x1], y: [y0, y1] },
    recipe: {
      template: 'lines',
      texts: {
        ...{ xTitle: t('step'), yTitle: t('value'), colorTitle: t('quantile') },
        ...{ xTicks: 'null', xLabel: WHOLE_NUMBERS, yScale: transform === 'log' ? 'symlog' : 'linear' }
      },
      params: { x0, x1, y0, y1, keyText: SHARES.map(share => shareName(share, t)) },
      datasets: {
        rows,
        band,
        nonfinite: steps
          .filter(({ nonFinite }) => nonFinite > 0)
          .slice(0, MOST_POINTS)
          .map(({ step: x, nonFinite: count }) => ({ x, x2: x, count, color: COLORS.nonfinite[0] })),
        key: SHARES.map((_, place) => ({ place, color: color(place) }))
      },
      height: 300
    }
  };
}
