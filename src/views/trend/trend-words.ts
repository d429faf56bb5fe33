import { capital, compressorCaption, rankWords } from '../shared/describe';
import {
  STATISTICS,
  isWholeStatistic,
  keptStatistic,
  layoutOf,
  type Statistic,
  isSelective
} from '../../aggregate';
import { flagColor, formatInteger } from '../../charts';
import { isRangeText, inRanges } from '../../protocol/ranges';
import type { TrendOptions } from '../../protocol/views.generated';
import type { ILayerLine, ITrendAnswer, ITrendTensor } from '../../store/line-data';
import type { IMissingSteps, ITensorShape } from '../../store/tensor-data';
import type { IRunSource } from '../../store/source';
import { changeWords } from '../shared/change-words';
import type { IContent } from '../shared/content';
import { type Control, selectControl } from '../shared/control';
import { numberField } from '../shared/table';
import { layerWords, listWords } from '../shared/layers';
import type { IStateActions } from '../shared/states';
import type { Translate } from '../shared/translate';
import type { TensorSelection } from '../../protocol/requests.generated';

/**
 * The picker of a statistic: of whole tensors and of what the compressor kept. Parts of tensors, and bands,
 * are known of the latter only.
 */
export function statisticControl(
  { statistic, positions, interval }: Pick<Required<TrendOptions>, 'interval' | 'positions' | 'statistic'>,
  change: (statistic: Statistic) => void,
  t: Translate
): Control {
  const isPart = positions.trim() !== 'all' || interval !== 'none';
  const choices = STATISTICS.filter(value => value === statistic || !isPart || !isWholeStatistic(value)).map(
    value => ({ value, text: statisticWords(value, t) })
  );
  return selectControl('statistic', t('Statistic'), statistic, choices, change);
}

/**
 * What of a tensor enters a trend and what band is drawn: positions and vectors where there are several.
 * @param layout Of the newest row; undefined while there is none.
 */
export function selectionControls(
  options: Required<TrendOptions>,
  layout: ReturnType<typeof layoutOf> | undefined,
  change: (options: Partial<TrendOptions>) => void,
  t: Translate
): Control[] {
  const { positions, vector, interval, kind, statistic } = options;
  const controls: Control[] = [];
  if (layout && (layout.hasPositions || positions !== 'all')) {
    controls.push({
      kind: 'text',
      id: 'positions',
      label: t('Positions'),
      value: positions,
      suggestions: ['all', '0', ...(layout.length > 1 ? [String(layout.length - 1)] : [])],
      valid: isRangeText,
      change: value => change({ positions: value, ...partOf(value, statistic) })
    });
  }
  if (layout && layout.vectors > 1) {
    controls.push(
      numberField('vector', t('Vector'), vector, [0, layout.vectors - 1], value => change({ vector: value }))
    );
  }
  if (kind === 'lines') {
    const words = { none: t('none'), std: t('± std'), ci95: t('95 % of the mean') };
    controls.push(
      // A band is about a mean.
      selectControl('interval', t('Band'), interval, words, chosen =>
        change({ interval: chosen, ...(chosen === 'none' ? {} : { statistic: 'kept_mean' }) })
      )
    );
  }
  return controls;
}

/** The statistic of a part of tensors that stands for one of whole ones. */
function partOf(positions: string, statistic: Statistic): Pick<TrendOptions, 'statistic'> {
  const retained = keptStatistic(statistic);
  return positions.trim() !== 'all' && isWholeStatistic(statistic) && statistic !== 'nonfinite'
    ? { statistic: retained === null || retained === 'nonfinite' ? 'kept_rms' : `kept_${retained}` }
    : {};
}

export function statisticWords(statistic: Statistic, t: Translate): string {
  const words: Record<Statistic, string> = {
    mean: t('mean'),
    std: t('standard deviation'),
    min: t('minimum'),
    max: t('maximum'),
    rms: t('rms'),
    skewness: t('skewness'),
    kurtosis: t('kurtosis'),
    nonfinite: t('non-finite values'),
    kept_mean: t('mean of the kept values'),
    kept_std: t('standard deviation of the kept values'),
    kept_rms: t('rms of the kept values'),
    kept_min: t('minimum of the kept values'),
    kept_max: t('maximum of the kept values'),
    kept_abs_mean: t('mean magnitude of the kept values')
  };
  return words[statistic];
}

/** Say what a statistic is over: the whole tensor, or what the compressor kept, and of which compressors. */
export function keptWords(
  { kept, compressors }: Pick<ITrendAnswer, 'compressors' | 'kept'>,
  statistic: Statistic,
  t: Translate
): string[] {
  const isKept = kept || !isWholeStatistic(statistic);
  const over =
    statistic === 'nonfinite'
      ? t('Counts the values of each layer and step that are not finite.')
      : isKept
        ? t('Over the finite values that the compressor kept of each layer and step.')
        : t('Over all finite values of the whole tensor of each layer and step, before compression.');
  return [
    over,
    ...(kept && isWholeStatistic(statistic) ? [t('Statistics of the whole tensors were not recorded.')] : []),
    ...(isKept ? [compressorCaption(compressors, t)] : [])
  ];
}

/**
 * Name steps that are known to be missing and are not drawn: rows of other streams, or of other layers, may
 * lack where these are there.
 *
 * @param lines What is drawn, with the places at which lines begin anew.
 */
export function missingStepWords(
  missing: readonly IMissingSteps[],
  lines: readonly Pick<ILayerLine, 'starts' | 'steps'>[],
  t: Translate
): string[] {
  const longest = lines.reduce<(typeof lines)[number] | null>(
    (best, line) => (line.steps.length > (best?.steps.length ?? 0) ? line : best),
    null
  );
  const { holes, every } = longest ? holesOf(longest) : { holes: [WHOLE], every: 1 };
  const found = missing.flatMap(({ first, last, why }) =>
    holes.flatMap(({ from, to, beside }) => {
      const hole = { first: Math.max(first, from), last: Math.min(last, to), why };
      // Of every tenth step nine others lie between two, and none of them is missing.
      const isStep = Math.floor((hole.last - beside) / every) >= Math.ceil((hole.first - beside) / every);
      return hole.first <= hole.last && isStep ? [hole] : [];
    })
  );
  return found.map(({ first, last, why }) =>
    first === last
      ? t('Step %1 is missing. %2', formatInteger(first), why)
      : t('Steps %1 to %2 are missing. %3', formatInteger(first), formatInteger(last), why)
  );
}

/** Steps between which nothing is drawn, and a step beside them that is. */
interface IHole {
  readonly from: number;
  readonly to: number;
  readonly beside: number;
}

/** Steps are counted from 1. */
const WHOLE: IHole = { from: 1, to: Infinity, beside: 1 };

/** The steps that a line leaves out, before it, between its parts and after it; and its least distance. */
function holesOf({ starts, steps }: Pick<ILayerLine, 'starts' | 'steps'>): {
  readonly holes: readonly IHole[];
  readonly every: number;
} {
  const at = (index: number): number => steps[index] ?? NaN;
  const [first, last] = [at(0), at(steps.length - 1)];
  const distance = Array.from(steps)
    .slice(1)
    .reduce((least, step, index) => Math.min(least, step - at(index)), Infinity);
  return {
    every: Number.isFinite(distance) ? distance : 1,
    holes: [
      { from: 1, to: first - 1, beside: first },
      ...starts.map(start => ({ from: at(start - 1) + 1, to: at(start) - 1, beside: at(start - 1) })),
      { from: last + 1, to: Infinity, beside: last }
    ]
  };
}

export interface ITrendSubject {
  readonly source: IRunSource;
  readonly options: Required<TrendOptions>;
  readonly shape: ITensorShape;
  readonly selection: TensorSelection;
  readonly flag: string;
  /** Says what is not here any more. */
  readonly memory: (answer: ITrendAnswer) => readonly string[];
  readonly choose: (options: Partial<TrendOptions>) => void;
  readonly actions: IStateActions;
  readonly t: Translate;
}

export function trendWords(
  { source, options, shape, selection, flag, memory, t }: ITrendSubject,
  answer: ITrendAnswer,
  moved: string,
  more: readonly string[]
): Pick<IContent, 'caption' | 'summary' | 'title'> & { readonly swatch: string } {
  const name = statisticWords(options.statistic, t);
  const { lines } = answer;
  const steps = lines.flatMap(line => [line.steps[0] ?? NaN, line.steps[line.steps.length - 1] ?? NaN]);
  const nonFinite = lines.reduce((sum, each) => sum + each.nonFinite.reduce((a, b) => a + b, 0), 0);
  const bad = t('Values that were not finite: %1.', formatInteger(nonFinite));
  const marked = t(
    'Values that were not finite: %1; marks along the top show where.',
    formatInteger(nonFinite)
  );
  return {
    title: t(
      '%1, %2 of %3, steps %4 to %5',
      flag,
      name,
      layerWords(
        lines.map(each => each.layer),
        t
      ),
      formatInteger(Math.min(...steps)),
      formatInteger(Math.max(...steps))
    ),
    caption: [
      ...keptWords(answer, options.statistic, t),
      ...selectionWords(answer.newest, selection, t),
      ...intervalWords(options, answer.units, t),
      ...rankWords(answer.ranks, shape, options.rank, source.hello, t),
      ...more,
      ...(nonFinite > 0 ? [options.kind === 'lines' ? marked : bad] : []),
      ...missingStepWords(answer.missing, lines, t),
      ...memory(answer)
    ],
    summary: [moved, ...(nonFinite > 0 ? [bad] : [])].join(' '),
    swatch: flagColor(options.flag, source.hello?.flags.map(each => each.name) ?? [])
  };
}

/** Say what each layer did. */
export const layersWords = (
  lines: ITrendAnswer['lines'],
  { options: { statistic }, t }: ITrendSubject,
  leads = false
): string =>
  changeWords(
    capital(statisticWords(statistic, t)),
    lines.map(line => ({ ...line, starts: line.starts.map(at => line.steps[at] ?? NaN) })),
    t,
    leads
  );

/** Say which values enter a statistic where that is not all of them. */
export function selectionWords(row: ITrendTensor | null, selection: TensorSelection, t: Translate): string[] {
  if (row === null || !isSelective(row, selection)) {
    return [];
  }
  const { hasPositions, length, vectors } = layoutOf(row, selection.axes);
  const lines: string[] = [];
  if (vectors > 1) {
    const vector = Math.min(selection.vector, vectors - 1);
    lines.push(t('Vector %1 of %2, counted from 0.', vector, vectors));
  }
  if (selection.positions.trim() !== 'all') {
    const all = Array.from({ length }, (_, at) => at);
    const taken = inRanges(selection.positions, all);
    lines.push(
      hasPositions
        ? taken.length === 1
          ? t('Position %1 of %2, counted from 0.', listWords(taken, t), formatInteger(length))
          : t('Positions %1 of %2, counted from 0.', listWords(taken, t), formatInteger(length))
        : t('These tensors have no position axis; all of their values enter.')
    );
  }
  return lines;
}

/**
 * Say what a band is, or why there is none.
 * @param units How many positions and samples it is over at the newest step.
 */
export function intervalWords(
  { interval, statistic, kind }: Pick<Required<TrendOptions>, 'interval' | 'statistic' | 'kind'>,
  units: number,
  t: Translate
): string[] {
  if (interval === 'none') {
    return [];
  }
  if (keptStatistic(statistic) !== 'mean' || kind !== 'lines') {
    return [t('Bands are about the lines of a mean; choose mean and lines for one.')];
  }
  const count = formatInteger(units);
  if (interval === 'std') {
    return [t('Bands: one standard deviation over positions and samples (n = %1).', count)];
  }
  return units < 2
    ? [t('One position or sample has no confidence interval.')]
    : [
        t(
          'Bands: 95 % confidence interval of the mean, ± t · s / √n over positions and samples (n = %1). Neighbouring positions are not independent: the true interval is wider.',
          count
        )
      ];
}
