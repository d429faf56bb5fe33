import { formatInteger, formatNumber } from '../../charts';
import type { HeatmapOptions } from '../../protocol/views.generated';
import type { ITensorRow, ITensorResult } from '../../store/tensor-data';
import { lockedWords } from '../shared/controls';
import {
  axisWords,
  compressorCaption,
  compressorWords,
  omissionWords,
  thinnedWords
} from '../shared/describe';
import { layerWords, layerName } from '../shared/layers';
import type { Translate } from '../shared/translate';
import type { ILayer, IShown, ITextShown } from './heatmap-data';

/** Rows whose compression error is not known, so that an older one is worth a look. */
export function unmeasured(rows: readonly ITensorRow[]): boolean {
  return rows.some(row => !Number.isFinite(row.compressionError));
}

/**
 * Say what the compressor lost, as a part of the tensor's rms, and of which step that is known.
 *
 * @param rows What is drawn, one row a layer.
 * @param measured The newest measured row of each layer; used where the drawn one was not measured and the
 * compressor was the same.
 */
export function errorWords(
  rows: readonly ITensorRow[],
  measured: readonly ITensorRow[],
  t: Translate
): string[] {
  const known = rows.flatMap(row => {
    const older = measured.find(each => each.layer === row.layer && each.compressor === row.compressor);
    const from = Number.isFinite(row.compressionError) ? row : older;
    return from && Number.isFinite(from.compressionError) ? [from] : [];
  });
  const [first] = known;
  if (first === undefined) {
    return [];
  }
  const errors = known.map(row => row.compressionError);
  const [least, most] = [Math.min(...errors), Math.max(...errors)];
  const percent = (error: number): string => `${formatNumber(error * 100, 2)} %`;
  const steps = [...new Set(known.map(row => row.step))].sort((a, b) => a - b);
  const newest = steps[steps.length - 1] ?? 0;
  const shown = rows[0]?.step ?? 0;
  const of =
    known.length < rows.length
      ? t(
          ', in %1',
          layerWords(
            known.map(row => row.layer),
            t
          )
        )
      : '';
  const when =
    newest === shown && steps.length === 1
      ? ''
      : steps.length === 1
        ? t(', as measured at step %1', formatInteger(newest))
        : t(', as measured at steps %1 to %2', formatInteger(steps[0] ?? 0), formatInteger(newest));
  if (most === 0) {
    return [t('The compressor kept the whole of the tensor%1.', of + when)];
  }
  const range =
    percent(least) === percent(most) ? percent(most) : t('%1 to %2', percent(least), percent(most));
  return [t('Lost to the compressor: %1 of the tensor’s rms%2.', range, of + when)];
}

/** Name a position: its number, and its text where that is known. */
export function positionWords(shown: IShown, column: number): string {
  const token = shown.tokens[column];
  return token === undefined ? formatInteger(column) : `${formatInteger(column)} “${token}”`;
}

/** Name the step, or the text. */
const ofWords = ({ step, text }: Pick<IShown, 'step' | 'text'>, t: Translate): string =>
  text ? t('generation %1', formatInteger(text.generation)) : t('step %1', formatInteger(step));

/** Say of a text what is not there, and what cells of attention hold. */
function textWords({ sequence, sequences, missing, unread, block }: ITextShown, t: Translate): string[] {
  return [
    t('Sequence %1 of %2, put together from all its passes.', sequence + 1, sequences),
    ...(block
      ? [
          t(
            'Each cell is the largest of %1 × %2 probabilities.',
            formatInteger(block[0]),
            formatInteger(block[1])
          )
        ]
      : []),
    ...(missing > 0 ? [t('Positions of which nothing came, left blank: %1.', formatInteger(missing))] : []),
    ...(unread === 1 ? [t('The last token was not read by the model.')] : []),
    ...(unread > 1 ? [t('Positions that the model did not read: %1.', formatInteger(unread))] : [])
  ];
}

/** Say what the picture is: `MLP1 output, mean of 96 tiles, layer 3, step 1 240`. */
export function heatmapTitle(shown: IShown, flag: string, head: number, t: Translate): string {
  const row = shown.layers[0]?.row;
  return [
    flag,
    compressorWords(row?.compressor ?? '', t, row?.shape[row.shape.length - 1]),
    ...((shown.text?.heads ?? shown.axes.heads) > 1 ? [t('head %1', head)] : []),
    layerWords(
      shown.layers.map(each => each.layer),
      t
    ),
    ofWords(shown, t)
  ].join(', ');
}

/** Say everything that is not literal in the picture, a sentence each. */
export function heatmapCaption(
  shown: IShown,
  options: Required<HeatmapOptions>,
  result: Omit<ITensorResult, 'rows'>,
  words: { readonly rank: readonly string[]; readonly error: readonly string[] },
  t: Translate
): string[] {
  const first = shown.layers[0]?.row;
  const sum = (read: (row: ITensorRow) => number): number =>
    shown.layers.reduce((total, each) => total + read(each.row), 0);
  const [nan, inf] = [sum(row => row.nanCount), sum(row => row.infCount)];
  const lines = [
    compressorCaption([first?.compressor ?? ''], t),
    ...words.error,
    ...(shown.text
      ? textWords(shown.text, t)
      : [t('Sample %1 of %2, counted from 0.', shown.sample, first?.sourceShape[0] ?? 1)])
  ];
  if (first && first.microBatch > 0) {
    lines.push(t('Micro-batch %1.', first.microBatch));
  }
  lines.push(...words.rank);
  if (!shown.text && options.step !== null && options.step !== shown.step) {
    lines.push(
      options.step <= (result.kept?.thinnedTo ?? -Infinity)
        ? t('Step %1 is not kept any more; this is the nearest one.', formatInteger(options.step))
        : t('Step %1 was not traced; this is the nearest one.', formatInteger(options.step))
    );
  }
  if (options.transform === 'log') {
    const decades = new Set(shown.layers.map(each => each.scale.decades));
    lines.push(
      decades.size === 1
        ? t('Colours are logarithmic over %1 decades, symmetric about zero.', [...decades].join())
        : t('Colours are logarithmic, symmetric about zero.')
    );
  }
  const values = shown.layers.map(each => each.slice.values);
  lines.push(...lockedWords(options.color_range, values, t));
  if (shown.nonFinite > 0) {
    lines.push(t('Cells that are not finite (hatched): %1.', formatInteger(shown.nonFinite)));
  }
  if (nan + inf > 0) {
    lines.push(
      t('The traced tensors held %1 NaN and %2 infinite values.', formatInteger(nan), formatInteger(inf))
    );
  }
  return [...lines, ...(result.kept ? thinnedWords(result.kept, t) : []), ...omissionWords(result, t)];
}

/** Where the value of largest magnitude is; null where none is finite. */
export function peakOf({
  extent,
  layers
}: IShown): { layer: ILayer; column: number; row: number; value: number } | null {
  const value = extent && (Math.abs(extent[0]) > Math.abs(extent[1]) ? extent[0] : extent[1]);
  const layer = layers.find(each => value !== null && each.slice.extent?.includes(value));
  if (value === null || !layer) {
    return null;
  }
  const cell = layer.slice.values.indexOf(value);
  const { columns } = layer.slice;
  return { layer, column: cell % columns, row: Math.floor(cell / columns), value };
}

/** Say what the picture shows: what is not finite, the range, the largest magnitude and where it is. */
export function heatmapSummary(shown: IShown, t: Translate): string {
  const { extent, axes } = shown;
  const where = (column: number, row: number): string =>
    `${axisWords(axes.x, t)} ${positionWords(shown, column)}${axes.y ? `, ${axisWords(axes.y, t)} ${row}` : ''}`;
  const parts = badWords(shown, where, t);
  if (extent) {
    const [lo, hi] = [formatNumber(extent[0]), formatNumber(extent[1])];
    parts.push(
      shown.text
        ? t('In %1 values run from %2 to %3.', ofWords(shown, t), lo, hi)
        : t('At step %1 values run from %2 to %3.', formatInteger(shown.step), lo, hi)
    );
    const peak = peakOf(shown);
    if (peak) {
      const { layer, column, row, value } = peak;
      const at = where(column, row);
      parts.push(
        t('The largest magnitude, %1, is in %2 at %3.', formatNumber(value), layerName(layer.layer, t), at)
      );
    }
  }
  return parts.join(' ');
}

/** Say how many cells are not finite, and where the first of them is. */
function badWords(
  { nonFinite, layers }: IShown,
  where: (column: number, row: number) => string,
  t: Translate
): string[] {
  const layer = layers.find(({ slice }) => slice.nonFinite > 0);
  if (!layer) {
    return [];
  }
  const { columns, values, missing } = layer.slice;
  const cell = values.findIndex((value, at) => !Number.isFinite(value) && missing?.[at] !== 1);
  return [
    t(
      'Cells that are not finite: %1, first in %2 at %3.',
      formatInteger(nonFinite),
      layerName(layer.layer, t),
      where(cell % columns, Math.floor(cell / columns))
    )
  ];
}
