import { formatInteger, formatNumber } from '../../../../charts';
import { compressorWords, readCompressor, tokenText } from '../../../../views/shared/describe';
import { layerName } from '../../../../views/shared/layers';
import type { Translate } from '../../../../views/shared/translate';
import type { IGeneration } from '../../store/generations';
import { type IPlane, type ProjectionChoice, axesOf, type IProjected } from './projection-reader';
import type { IVectorToken, TextVectors } from './text-vectors';

/** A residual above this is reported: the search for components was given up. */
const EXACT = 1e-5;

/** Name a token by its text and where it stands. */
export function tokenWords(token: IVectorToken, t: Translate): string {
  return t('“%1”, position %2', tokenText(token.piece), formatInteger(token.position));
}

/** Name the sequence of a token, and its generation where there are several. */
export function sequenceWords(
  token: IVectorToken,
  generations: readonly IGeneration[],
  t: Translate
): string {
  const sequence = t('sequence %1', formatInteger(token.sequence));
  return generations.length > 1
    ? t('generation %1, %2', formatInteger(token.generation), sequence)
    : sequence;
}

export const countWords = (count: number, t: Translate): string =>
  count === 1 ? t('1 token') : t('%1 tokens', formatInteger(count));

/** Name the generations: `generation 2`, `3 generations`. */
export function generationWords(generations: readonly IGeneration[], t: Translate): string {
  const [first] = generations;
  return generations.length === 1 && first
    ? t('generation %1', formatInteger(first.generation))
    : t('%1 generations', formatInteger(generations.length));
}

export function axisTitles(
  { plane }: IProjected,
  options: ProjectionChoice,
  t: Translate
): { x: string; y: string } {
  if (options.method === 'umap') {
    return { x: t('UMAP 1'), y: t('UMAP 2') };
  }
  const { across, up } = axesOf(options);
  const title = (component: number, ratio: number): string =>
    isRotated(plane)
      ? t('PC %1, turned, %2 % of variance', component, formatNumber(100 * ratio, 3))
      : t('PC %1, %2 % of variance', component, formatNumber(100 * ratio, 3));
  return { x: title(across, plane.ratios[0]), y: title(up, plane.ratios[1]) };
}

/** Say what the picture is: `Principal components of Hidden states, layer 3, generation 2`. */
export function projectionTitle(
  { generations, plane }: IProjected,
  subject: string,
  { method }: ProjectionChoice,
  t: Translate
): string {
  const what = method === 'umap' ? t('UMAP of %1', subject) : t('Principal components of %1', subject);
  return [what, layerName(plane.layer, t), generationWords(generations, t)].join(', ');
}

/** Say which features of the tensor there are. */
function featureWords({ features, source: { row } }: IPlane, t: Translate): string {
  const total = row.sourceShape[row.sourceShape.length - 1] ?? 0;
  const retained = formatInteger(features.columns);
  return readCompressor(row.compressor).name === 'NoOp' || features.columns === total
    ? t('Of each token all %1 features.', retained)
    : t(
        'Of each token what the compressor kept: %1, of %2 features.',
        compressorWords(row.compressor, t, row.shape[row.shape.length - 1]),
        formatInteger(total)
      );
}

const thinnedWords = ({ all, far, every }: NonNullable<TextVectors['thinned']>, t: Translate): string =>
  t(
    'Of %1 tokens the %2 farthest from their mean are drawn, and one in %3 of the others.',
    ...[all, far, every].map(formatInteger)
  );

/** Say everything that is not literal in the picture, a sentence each. */
export function projectionCaption(projected: IProjected, options: ProjectionChoice, t: Translate): string[] {
  const { plane, text, umap } = projected;
  const { features, source } = plane;
  const count = (number: number, words: (number: string) => string): string[] =>
    number > 0 ? [words(formatInteger(number))] : [];
  return [
    featureWords(plane, t),
    ...(options.standardise ? [t('Each feature is divided by its deviation.')] : []),
    ...count(features.constant, n => t('Features that are the same in every token, and add nothing: %1.', n)),
    ...(text.thinned ? [thinnedWords(text.thinned, t)] : []),
    ...count(source.missing, n => t('Tokens whose tensors are not here, left out: %1.', n)),
    ...count(source.unfitting, n => t('Tokens that were traced with other features, left out: %1.', n)),
    ...count(text.unread, n =>
      t('Tokens that the model wrote last and never read, which have no vectors: %1.', n)
    ),
    ...(plane.turn && options.method === 'pca' ? [turnWords(plane.turn, t)] : []),
    ...(plane.residual > EXACT
      ? [
          t(
            'No direction stands out, so the components are approximate (%1).',
            formatNumber(plane.residual, 2)
          )
        ]
      : []),
    ...(options.method === 'umap'
      ? [
          t(
            'UMAP keeps each token near its %1 nearest; far distances and the axes mean nothing. Seed %2.',
            formatInteger(options.neighbors - 1),
            options.seed
          ),
          ...((umap?.state?.seen ?? 1) < 1
            ? [
                t(
                  'They are looked for among the first 64 components, %1 % of the variance.',
                  formatNumber(100 * (umap?.state?.seen ?? 1), 3)
                )
              ]
            : []),
          ...(umap === null
            ? [t('It begins when the text is written; until then the first two components.')]
            : [])
        ]
      : [])
  ];
}

/** Whether the axes were rotated by more than a degree, so that they are not the components up to sign. */
const isRotated = ({ turn }: IPlane): boolean =>
  turn !== null && Math.abs(turn.matrix[0]) < Math.cos(Math.PI / 180);

function turnWords(turn: NonNullable<IPlane['turn']>, t: Translate): string {
  const degrees = formatInteger(Math.round(turn.degrees));
  const residual = formatNumber(Math.round(1000 * turn.residual) / 1000, 2);
  return t(
    turn.mirrored
      ? 'Mirrored and turned by %1° onto %2, so that the axes stay; residual %3 (Procrustes: 0 is the same shape, 1 another).'
      : 'Turned by %1° onto %2, so that the axes stay; residual %3 (Procrustes: 0 is the same shape, 1 another).',
    degrees,
    layerName(turn.onto, t),
    residual
  );
}

/** The token that is drawn farthest from the middle, and how many times as far as the median one. */
export function farthestOf(projected: IProjected): { readonly token: number; readonly times: number } | null {
  const { coordinates, text } = projected;
  const drawn = Array.from(text.tokens.keys()).filter(at => !Number.isNaN(coordinates[2 * at] ?? NaN));
  const far = drawn.map(at =>
    Math.sqrt((coordinates[2 * at] ?? 0) ** 2 + (coordinates[2 * at + 1] ?? 0) ** 2)
  );
  const sorted = [...far].sort((a, b) => a - b);
  const [most, median] = [sorted[sorted.length - 1] ?? 0, sorted[sorted.length >> 1] ?? 0];
  const token = drawn[far.indexOf(most)];
  return token === undefined || median === 0 ? null : { token, times: most / median };
}

/** Say what the picture shows. */
export function projectionSummary(projected: IProjected, options: ProjectionChoice, t: Translate): string {
  const { plane, text } = projected;
  const tokens = formatInteger(plane.features.rows);
  const lost =
    plane.notFinite > 0
      ? [t('Tokens with values that are not finite, left out: %1.', formatInteger(plane.notFinite))]
      : [];
  if (options.method === 'umap') {
    const laid = t('%1 tokens, laid out by their %2 nearest neighbours.', tokens, options.neighbors - 1);
    return [...lost, laid].join(' ');
  }
  const held = formatNumber(100 * (plane.ratios[0] + plane.ratios[1]), 3);
  const farthest = farthestOf(projected);
  const token = farthest && text.tokens[farthest.token];
  return [
    ...lost,
    t('The two axes hold %1 % of the variance of %2 tokens.', held, tokens),
    ...(token && farthest
      ? [
          t(
            'Farthest from the mean is %1: %2 times as far as the median token.',
            tokenWords(token, t),
            formatNumber(farthest.times, 2)
          )
        ]
      : [])
  ].join(' ');
}
