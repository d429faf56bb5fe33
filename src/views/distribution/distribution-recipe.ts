import { quantileOf, spanOfBin, type IHistograms, type IStepCounts } from '../../aggregate';
import {
  COLORS,
  ColorScale,
  formatNumber,
  lowMagnitude,
  Pictures,
  type IColorLook,
  type IRecipe,
  type Row
} from '../../charts';
import { mixed, hexOf } from '../../charts/color-scale';
import { WHOLE_NUMBERS } from '../shared/lines/line-recipe';
import { rowPlaces } from '../shared/row-places';
import { colorStrip, extentOf } from '../shared/scale';
import type { Translate } from '../shared/translate';

/** Most columns of a map: of more steps those of a column are added up, which fixed bins make exact. */
const MOST_COLUMNS = 1024;
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
  readonly transform: 'linear' | 'log';
  readonly look: IColorLook;
}

/** A chart, what it spans, and where its marks lie. */
export interface IDrawnDistribution {
  readonly recipe: IRecipe;
  readonly extent: { x: readonly [number, number]; y: readonly [number, number] };
  /** Colours of a map; null where there is none. */
  readonly domain: readonly [number, number] | null;
  /** Steps that are drawn: a column of a map, a ridge, or a point of each line. */
  readonly steps: readonly IStepCounts[];
  /** Least and greatest bin that is drawn. */
  readonly span: readonly [number, number];
  /** Width of a column. */
  readonly spacing: number;
}

/** The bins that hold a value at any step, with one more on either side. */
function occupied({ bins, steps }: IHistograms): [number, number] {
  const last = 2 * bins.count;
  let [low, high] = [last, 0];
  for (const { counts } of steps) {
    counts.forEach((count, bin) => {
      low = count > 0 && bin < low ? bin : low;
      high = count > 0 && bin > high ? bin : high;
    });
  }
  return [Math.max(0, low - 1), Math.min(last, high + 1)];
}

/** Name the end of a bin that lies farther from zero. */
const binLabel = ({ bins }: IHistograms, bin: number): string => {
  const [low, high] = spanOfBin(bins, bin);
  return bin === bins.count ? '0' : formatNumber(bin > bins.count ? low : high, 2);
};

function columnsOf(steps: readonly IStepCounts[]): { columns: IStepCounts[]; spacing: number } {
  const gaps = steps.slice(1).map(({ step }, at) => step - (steps[at]?.step ?? 0));
  const [first, last] = [steps[0]?.step ?? 0, steps[steps.length - 1]?.step ?? 0];
  const least = gaps.reduce((a, b) => Math.min(a, b), gaps[0] ?? 1);
  const spacing = Math.max(least, (last - first) / (MOST_COLUMNS - 1));
  const columns: IStepCounts[] = [];
  for (const each of steps) {
    const step = first + Math.round((each.step - first) / spacing) * spacing;
    const before = columns[columns.length - 1];
    if (before?.step === step) {
      columns[columns.length - 1] = {
        step,
        counts: before.counts.map((count, bin) => count + (each.counts[bin] ?? 0)),
        total: before.total + each.total,
        nonFinite: before.nonFinite + each.nonFinite,
        extremes: [
          Math.min(before.extremes[0], each.extremes[0]),
          Math.max(before.extremes[1], each.extremes[1])
        ]
      };
    } else {
      columns.push({ ...each, step });
    }
  }
  return { columns, spacing };
}

/** The share of values in each bin by step. The greatest values are at the top. */
export function distributionMap(
  { data, transform, look }: IDistributionWish,
  t: Translate
): IDrawnDistribution {
  const { columns: steps, spacing } = columnsOf(data.steps);
  const [low, high] = occupied(data);
  const rows = high - low + 1;
  const first = steps[0]?.step ?? 0;
  const columns = Math.round(((steps[steps.length - 1]?.step ?? 0) - first) / spacing) + 1;
  const values = new Float64Array(rows * columns);
  const missing = new Uint8Array(rows * columns).fill(1);
  for (const { step, counts, total } of steps) {
    const column = Math.round((step - first) / spacing);
    for (let bin = low; bin <= high; bin++) {
      const cell = (high - bin) * columns + column;
      values[cell] = (counts[bin] ?? 0) / total;
      missing[cell] = 0;
    }
  }
  const drawn = extentOf([values]);
  const least = transform === 'log' ? lowMagnitude([values]) : NaN;
  const scale = new ColorScale(drawn && [0, drawn[1]], transform, least, look);
  const strip = colorStrip(scale, false, t);
  const picture = new Pictures().draw(0, { rows, columns, values, missing }, scale);
  const [x0, x1, y0, y1] = [first - spacing / 2, first + (columns - 0.5) * spacing, -0.5, rows - 0.5];
  const { height, labelled } = rowPlaces(rows, ROW);
  return {
    steps,
    spacing,
    span: [low, high],
    domain: scale.domain,
    extent: { x: [x0, x1], y: [y0, y1] },
    recipe: {
      template: 'moment-map',
      texts: {
        xTitle: t('step'),
        yTitle: t('value'),
        xLabel: WHOLE_NUMBERS,
        legendTitle: t('share of values')
      },
      params: {
        ...{ x0, x1, y0, y1 },
        rowAt: labelled,
        rowText: labelled.map(row => binLabel(data, high - row)),
        ...strip.params
      },
      datasets: { pictures: [{ ...picture, x: x0, x2: x1, y: y0, y2: y1 }], legend: strip.rows },
      height
    }
  };
}

/** The distribution of some steps as lines that stand on their step. */
export function distributionRidges({ data }: IDistributionWish, t: Translate): IDrawnDistribution {
  const all = data.steps;
  const [low, high] = occupied(data);
  const [first, last] = [all[0]?.step ?? 0, all[all.length - 1]?.step ?? 0];
  const count = Math.min(MOST_RIDGES, all.length);
  const gap = count > 1 ? (last - first) / (count - 1) : 1;
  const nearest = (step: number): IStepCounts | undefined =>
    all.reduce(
      (best, each) => (Math.abs(each.step - step) < Math.abs(best.step - step) ? each : best),
      all[0]!
    );
  const steps = [...new Set(Array.from({ length: count }, (_, at) => nearest(first + at * gap)))].filter(
    each => each !== undefined
  );
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
    spacing: 1,
    span: [low, high],
    domain: null,
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
export function distributionQuantiles(
  { data, transform }: IDistributionWish,
  t: Translate
): IDrawnDistribution {
  const { steps, bins } = data;
  const color = (at: number): string => hexOf(mixed(HUES, at / (SHARES.length - 1)));
  const rows: Row[] = [];
  const band: Row[] = [];
  SHARES.forEach((share, line) => {
    for (const of of steps) {
      const { value, error } = quantileOf(bins, of, share);
      const [x, isKnown] = [of.step, Number.isFinite(value)];
      rows.push({
        ...{ x, line, value: isKnown ? value : null, name: shareName(share, t), color: color(line) },
        ...{ opacity: 1, dash: [1, 0], alone: steps.length === 1 }
      });
      const [low, high] = Number.isFinite(error) ? [value - error, value + error] : [null, null];
      band.push({ x, line, low, high, color: color(line) });
    }
  });
  const ends = extentOf([
    rows.map(({ value }) => Number(value ?? NaN)),
    band.flatMap(({ low, high }) => [Number(low ?? NaN), Number(high ?? NaN)])
  ]) ?? [0, 1];
  const air = (ends[1] - ends[0]) * 0.05 || Math.abs(ends[0]) * 0.1 || 1;
  const [y0, y1] = [ends[0] - air, ends[1] + air];
  const [first, last] = [steps[0]?.step ?? 0, steps[steps.length - 1]?.step ?? 0];
  const [x0, x1] = first < last ? [first, last] : [first - 0.5, first + 0.5];
  return {
    steps,
    spacing: 0,
    span: occupied(data),
    domain: null,
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
        nonfinite: steps.flatMap(({ step: x, nonFinite: count }) =>
          count > 0 ? [{ x, x2: x, count, color: COLORS.nonfinite[0] }] : []
        ),
        key: SHARES.map((_, place) => ({ place, color: color(place) }))
      },
      height: 300
    }
  };
}
