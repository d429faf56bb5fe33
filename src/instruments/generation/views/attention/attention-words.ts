import { formatInteger, formatNumber, type ColorScale } from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import { lockedWords } from '../../../../views/shared/controls';
import { compressorCaption, omissionWords } from '../../../../views/shared/describe';
import { layerWords, listWords } from '../../../../views/shared/layers';
import type { Translate } from '../../../../views/shared/translate';
import type { IHeadMap, IHeadMaps } from './attention-maps';
import { percent, type IAttentionText } from './attention-text';

/** What a head does that is worth a sentence. */
export interface IHabit {
  readonly layer: number;
  readonly head: number;
  readonly kind: 'before' | 'first';
  /** Mean probability, at most so much where `isBound`. */
  readonly share: number;
  readonly isBound: boolean;
}

export const mapName = ({ layer, head }: Pick<IHeadMap, 'head' | 'layer'>, t: Translate): string =>
  t('layer %1, head %2', layer, head);

export const headWords = (heads: readonly number[], t: Translate): string =>
  heads.length === 1 ? t('head %1', heads[0] ?? 0) : t('heads %1', listWords(heads, t));

export function textWords({ generation, step }: IAttentionText, t: Translate): string {
  return generation === null
    ? t('step %1', formatInteger(step))
    : t('generation %1', formatInteger(generation));
}

/** Say what a picture is: `Attention of generation 3, layer 2, head 5`. */
export function attentionTitle(
  text: IAttentionText,
  layers: readonly number[],
  heads: readonly number[],
  t: Translate
): string {
  return [
    t('Attention of %1', textWords(text, t)),
    layerWords([...new Set(layers)], t),
    headWords([...new Set(heads)], t)
  ].join(', ');
}

/** Say what is not literal of the text, whichever way it is drawn. */
export function textCaption(
  text: IAttentionText,
  compressor: string,
  wanted: number | null,
  t: Translate
): string[] {
  const { read, sequence, sequences, generation, step } = text;
  const lines = [
    ...(text.rest && text.tokens.length === 0 ? [t('Its tokens are still being read.')] : []),
    ...(text.isCoarse ? [t('Finer cells are still being read.')] : []),
    compressorCaption([compressor], t),
    generation === null
      ? t('Sample %1 of %2, counted from 0.', sequence, sequences)
      : t('Sequence %1 of %2, counted from 0.', sequence, sequences)
  ];
  if (generation === null && wanted !== null && wanted !== step) {
    lines.push(t('Step %1 was not traced; this is the nearest one.', formatInteger(wanted)));
  }
  if (read.missing > 0) {
    lines.push(t('Positions of which nothing came, left blank: %1.', formatInteger(read.missing)));
  }
  if (read.unread > 0) {
    lines.push(
      read.unread === 1
        ? t('The last token was not read by the model.')
        : t('Positions that the model did not read: %1.', formatInteger(read.unread))
    );
  }
  return [...lines, ...omissionWords({ evictedRows: read.kept.evictedRows }, t)];
}

/**
 * Say what is not literal of maps.
 * @param finest Least positions of a cell, down and across, that there are anywhere in the text.
 */
export function mapsCaption(
  shown: IHeadMaps,
  scale: ColorScale,
  options: Pick<Required<AttentionOptions>, 'color_range' | 'transform'>,
  finest: readonly [number, number],
  t: Translate
): string[] {
  const { maps, left, nonFinite } = shown;
  const sides = maps.map(({ map }) => [map.queries.side, map.keys.side] as const);
  const [down, across] = [Math.max(...sides.map(each => each[0])), Math.max(...sides.map(each => each[1]))];
  const lines: string[] = [];
  if (down > 1 || across > 1) {
    const side = `${formatInteger(down)} × ${formatInteger(across)}`;
    lines.push(
      down > finest[0] || across > finest[1]
        ? t('Each cell is the largest of %1 probabilities; zoom in for smaller cells.', side)
        : t('Each cell is the largest of %1 probabilities.', side)
    );
  }
  if (maps.some(({ map }) => map.padded)) {
    lines.push(t('The first row of cells also holds padding in front of a shorter prompt.'));
  }
  if (options.transform === 'log') {
    lines.push(t('Colours are logarithmic over %1 decades.', scale.decades));
  }
  lines.push(
    ...lockedWords(
      options.color_range,
      maps.map(({ cells }) => cells.values),
      t
    )
  );
  if (nonFinite > 0) {
    lines.push(t('Cells that are not finite (hatched): %1.', formatInteger(nonFinite)));
  }
  if (left > 0) {
    lines.push(
      t('Drawn are the first %1 of %2 maps.', formatInteger(maps.length), formatInteger(maps.length + left))
    );
  }
  return lines;
}

/** Say how many cells of maps are not finite, and of which head the first is; nothing where all are. */
export function unfinishedWords({ maps, nonFinite }: IHeadMaps, t: Translate): string[] {
  const first = maps.find(({ cells: { values, missing } }) =>
    values.some((value, cell) => missing?.[cell] !== 1 && !Number.isFinite(value))
  );
  return first
    ? [
        t(
          'Cells that are not finite: %1, first in head %2 of layer %3.',
          formatInteger(nonFinite),
          first.head,
          first.layer
        )
      ]
    : [];
}

/** Say what a head does: `Head 5 of layer 2 looks at the first token with 93 % on average.` */
export function habitWords(habit: IHabit | null, t: Translate): string {
  if (habit === null) {
    return '';
  }
  const { layer, head, kind, share, isBound } = habit;
  const value = percent(share);
  return kind === 'before'
    ? t('Head %1 of layer %2 looks at the token before with %3 on average.', head, layer, value)
    : isBound
      ? t('Head %1 of layer %2 looks at the first token with up to %3 on average.', head, layer, value)
      : t('Head %1 of layer %2 looks at the first token with %3 on average.', head, layer, value);
}

export function measureNames(t: Translate): Readonly<Record<Required<AttentionOptions>['measure'], string>> {
  return {
    entropy: t('mean entropy, nats'),
    distance: t('mean distance, tokens'),
    first: t('share on the first token')
  };
}

export const measureText = (measure: Required<AttentionOptions>['measure'], value: number): string =>
  measure === 'first' ? percent(value) : formatNumber(value, 3);
