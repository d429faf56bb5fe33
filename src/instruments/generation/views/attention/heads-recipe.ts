import {
  formatInteger,
  type ColorScale,
  type IMatrix,
  type IRecipe,
  type Pictures
} from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import { WHOLE_NUMBERS } from '../../../../views/shared/lines/line-recipe';
import { colorStrip } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';
import { measureText } from './attention-words';
import type { IHeadMeasure } from './head-measures';

type Measure = Required<AttentionOptions>['measure'];

/** A measure of heads as layer × head. */
export interface IMeasuredHeads {
  readonly layers: readonly number[];
  readonly heads: readonly number[];
  /** Row by row, as the cells. */
  readonly measures: readonly IHeadMeasure[];
  /** Missing where a layer has no such head. */
  readonly cells: IMatrix & { readonly values: Float32Array };
  readonly compressor: string;
}

const HEIGHT = { row: 26, least: 120, most: 480 };

/** Put the measures of heads into a matrix. */
export function headsOf(
  layers: readonly number[],
  heads: readonly number[],
  measures: readonly IHeadMeasure[],
  compressor: string
): IMeasuredHeads {
  const cells = {
    rows: layers.length,
    columns: heads.length,
    values: Float32Array.from(measures, each => each.value),
    missing: Uint8Array.from(measures, each => (each.queries + each.unfinished === 0 ? 1 : 0))
  };
  return { layers, heads, measures, cells, compressor };
}

/** Return the chart of layer × head. */
export function headsRecipe(
  { layers, heads, cells, measures }: IMeasuredHeads,
  scale: ColorScale,
  name: string,
  pictures: Pictures,
  t: Translate
): IRecipe {
  const strip = colorStrip(scale, measures.some(isUnfinished), t);
  const [x, x2, y, y2] = [-0.5, heads.length - 0.5, -0.5, layers.length - 0.5];
  const rowAt = layers.map((_, row) => row);
  return {
    template: 'moment-map',
    texts: { xTitle: t('head'), yTitle: t('layer'), xLabel: WHOLE_NUMBERS, legendTitle: name },
    params: { x0: x, x1: x2, y0: y, y1: y2, rowAt, rowText: layers.map(String), ...strip.params },
    datasets: { pictures: [{ ...pictures.draw(0, cells, scale), x, x2, y, y2 }], legend: strip.rows },
    painted: pictures.painted,
    height: Math.min(HEIGHT.most, Math.max(HEIGHT.least, layers.length * HEIGHT.row))
  };
}

/** The place of the head that the summary names: of the least entropy, or of the greatest of the other measures; -1 where none is finite. */
export function tellingHead({ measures }: IMeasuredHeads, measure: Measure): number {
  let best = -1;
  measures.forEach(({ value }, at) => {
    const before = measures[best]?.value ?? NaN;
    const better = Number.isNaN(before) || (measure === 'entropy' ? value < before : value > before);
    best = Number.isFinite(value) && better ? at : best;
  });
  return best;
}

/** Say which head stands out. */
export function headsSummary(shown: IMeasuredHeads, measure: Measure, t: Translate): string {
  const at = tellingHead(shown, measure);
  const found = shown.measures[at];
  if (!found) {
    return t('No head has only finite probabilities.');
  }
  const columns = shown.heads.length;
  const [layer, head] = [shown.layers[Math.floor(at / columns)] ?? 0, shown.heads[at % columns] ?? 0];
  const value = measureText(measure, found.value);
  const sentences = {
    entropy: found.isBound
      ? t(
          'Head %1 of layer %2 may be the most focused: its mean entropy is at least %3 nats.',
          head,
          layer,
          value
        )
      : t('Head %1 of layer %2 is the most focused: its mean entropy is %3 nats.', head, layer, value),
    distance: found.isBound
      ? t('Head %1 of layer %2 looks back by at least %3 tokens on average.', head, layer, value)
      : t('Head %1 of layer %2 looks farthest: %3 tokens back on average.', head, layer, value),
    first: found.isBound
      ? t('Head %1 of layer %2 looks at the first token with up to %3 on average.', head, layer, value)
      : t('Head %1 of layer %2 looks at the first token with %3 on average.', head, layer, value)
  };
  return sentences[measure];
}

/** Say what a measure is where only maxima are known, and what was left out. */
export function boundCaption({ measures }: IMeasuredHeads, measure: Measure, t: Translate): string[] {
  const unfinished = measures.reduce((sum, each) => sum + each.unfinished, 0);
  const queries = Math.max(0, ...measures.map(each => each.queries));
  const bounds = {
    entropy: t(
      'Only the largest probability of each block was kept: entropies are at least as large as drawn, which is what it leaves possible.'
    ),
    distance: t(
      'Only the largest probability of each block was kept: distances are at least as large as drawn, which is what it leaves possible.'
    ),
    first: t(
      'Only the largest probability of each block was kept: shares are those of the first block’s largest, and at most as large as drawn.'
    )
  };
  return [
    t('Means over %1 queries.', formatInteger(queries)),
    ...(measures.some(each => each.isBound) ? [bounds[measure]] : []),
    ...(unfinished > 0
      ? [t('Rows of queries that are not finite, left out of the means: %1.', formatInteger(unfinished))]
      : [])
  ];
}

const isUnfinished = ({ queries, unfinished }: IHeadMeasure): boolean => queries === 0 && unfinished > 0;
