import { COLORS, type ColorScale, type Row } from '../../../../charts';
import type { TokensOptions } from '../../../../protocol/views.generated';
import type { IToken } from '../../store/generations';
import { colorStrip } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';

/** What colours a token. */
export type TokenColor = Required<TokensOptions>['color'];

/** What colours in words, with its unit. */
export function colorWords(color: TokenColor, t: Translate): string {
  const words: Readonly<Record<TokenColor, string>> = {
    probability: t('probability'),
    surprise: t('surprise (bits)'),
    entropy: t('entropy (nats)'),
    rank: t('rank'),
    none: t('nothing')
  };
  return words[color];
}

/** How surprising a token is, bits: -log2 of its probability. */
export const surpriseOf = ({ probability }: Pick<IToken, 'probability'>): number =>
  probability > 0 ? Math.max(0, -Math.log2(probability)) : probability === 0 ? Infinity : NaN;

/** Whether something predicts a token: the first one of a prompt stands alone. */
export const isPredicted = ({ isPrompt, position }: Pick<IToken, 'isPrompt' | 'position'>): boolean =>
  !isPrompt || position > 0;

/** The number that colours a token; null where there is none. */
export function colorValue(token: IToken, color: TokenColor): number | null {
  if (color === 'none' || !isPredicted(token)) {
    return null;
  }
  switch (color) {
    case 'probability':
      return token.probability;
    case 'surprise':
      return surpriseOf(token);
    case 'entropy':
      return token.entropy;
    case 'rank':
      return token.rank < 0 ? NaN : token.rank;
  }
}

/** The strip that says what the colours mean, from left to right; empty where nothing is coloured. */
export function stripOf(
  scale: ColorScale,
  isUnfinished: boolean,
  t: Translate
): { params: Record<string, unknown>; rows: readonly Row[] } {
  if (scale.empty && !isUnfinished) {
    return { params: { legendLow: 0, legendAt: [], legendText: [] }, rows: [] };
  }
  const { params, rows } = colorStrip(scale, false, t);
  if (!isUnfinished) {
    return { params: { ...params }, rows };
  }
  // Beside one another two labels need more room than above one another.
  return {
    params: {
      legendLow: -0.3,
      legendAt: [-0.22, ...params.legendAt],
      legendText: [t('not finite'), ...params.legendText]
    },
    rows: [...rows, { from: -0.3, to: -0.14, color: COLORS.nonfinite[0] }]
  };
}
