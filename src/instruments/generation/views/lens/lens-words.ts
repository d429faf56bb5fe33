import { formatInteger, formatNumber } from '../../../../charts';
import type { IGeneration } from '../../store/generations';
import type { ILensCell, Lens } from '../../store/lens';
import { omissionWords } from '../../../../views/shared/describe';
import { promptWords } from '../shared/generation-view';
import { layerWords } from '../../../../views/shared/layers';
import { quoted } from '../shared/token-text';
import type { Translate } from '../../../../views/shared/translate';
import { medianLayer, type ILead } from './lens-map';

/** What is read of the lens, and what was asked for. */
export interface ILensFacts {
  readonly generation: IGeneration;
  readonly sequence: number;
  readonly lens: Lens;
  readonly layers: readonly number[];
  readonly leads: readonly ILead[];
}

/** Name the picture: `Logit lens of “The capital of”, generation 3`. */
export function lensTitle({ generation, sequence, lens, layers }: ILensFacts, t: Translate): string {
  const prompt = promptWords(generation, sequence);
  const number = formatInteger(generation.generation);
  return [
    prompt === ''
      ? t('Logit lens of generation %1', number)
      : t('Logit lens of %1, generation %2', quoted(prompt), number),
    ...(generation.sequences > 1 ? [t('sequence %1', formatInteger(sequence))] : []),
    ...(layers.length < lens.layers.length ? [layerWords(layers)] : [])
  ].join(', ');
}

/**
 * What is not literal of the picture.
 *
 * @param outlined - Whether outlines are drawn.
 */
export function lensCaption({ lens, layers, leads }: ILensFacts, outlined: boolean, t: Translate): string[] {
  const [deepest] = lens.layers.slice(-1);
  return [
    t(
      'Each cell is the token that comes next by that layer: its hidden state, read through the model’s own final norm and output layer.'
    ),
    ...(outlined && leads.some(({ layer }) => layer !== null)
      ? [
          t(
            'Outlined: from that layer up to layer %1 the token that came in the end leads.',
            formatInteger(deepest ?? NaN)
          )
        ]
      : []),
    ...(deepest !== undefined && !layers.includes(deepest)
      ? [t('Layers that are not drawn count in this.')]
      : []),
    ...omissionWords({ evictedRows: lens.evictedRows }, t)
  ];
}

/**
 * Say from which layer on the final token leads, at the position that is looked at and over all.
 *
 * @param cell - What the deepest layer says at that position; null where nothing is known of it.
 * @param final - The token that came after it, in quotation marks; null where none did.
 */
export function lensSummary(
  { lens, leads }: ILensFacts,
  cell: ILensCell | null,
  final: string | null,
  t: Translate
): string {
  const [own] = leads.filter(({ position }) => position === cell?.position);
  const [best] = cell?.candidates ?? [];
  const where = formatInteger(cell?.position ?? NaN);
  return [
    ...(own && final !== null
      ? [
          own.layer === null
            ? t(
                '%1, which came after position %2, leads in no layer up to the last one (rank %3 there).',
                final,
                where,
                formatInteger(cell?.rank ?? NaN)
              )
            : t(
                '%1, which came after position %2, first leads in layer %3 of %4.',
                final,
                where,
                formatInteger(own.layer),
                layerWords(lens.layers)
              )
        ]
      : best
        ? [
            t(
              'After position %1 the last layer has %2 first, probability %3.',
              where,
              quoted(best.text),
              formatNumber(best.probability, 3)
            )
          ]
        : []),
    ...overallWords(leads, t)
  ].join(' ');
}

function overallWords(leads: readonly ILead[], t: Translate): string[] {
  const layers = leads.flatMap(({ layer }) => (layer === null ? [] : [layer]));
  const never = leads.length - layers.length;
  if (leads.length < 2 || layers.length === 0) {
    return [];
  }
  const [low, high] = layers.reduce(
    ([a, b], each) => [Math.min(a, each), Math.max(b, each)],
    [Infinity, -Infinity]
  );
  return [
    t(
      'Over %1 positions the final token first leads in layer %2 (median; layers %3 to %4).',
      formatInteger(layers.length),
      formatInteger(medianLayer(leads)),
      formatInteger(low),
      formatInteger(high)
    ),
    ...(never === 0
      ? []
      : never === 1
        ? [t('At 1 position it does not lead in the last layer.')]
        : [t('At %1 positions it does not lead in the last layer.', formatInteger(never))])
  ];
}
