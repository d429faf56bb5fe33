import type { TokensOptions } from '../../../../protocol/views.generated';
import type { Translate } from '../../../../views/shared/translate';
import type { IToken } from '../../store/generations';

export type TokenColor = Required<TokensOptions>['color'];

/** What colours in words, with its unit. */
export function colorWords(color: TokenColor, t: Translate): string {
  const words: Readonly<Record<TokenColor, string>> = {
    probability: t('probability'),
    surprise: t('surprise (bits)'),
    entropy: t('entropy (nats)'),
    rank: t('rank, from 0'),
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
