import { formatInteger, formatNumber } from '../../../../charts';
import type { IGeneration, IToken } from '../../store/generations';
import { perturbText } from '../../../../views/shared/perturb-text';
import type { SiteInfo } from '../../../../protocol/messages.generated';
import type { ITip } from '../../../../views/shared/table';
import { quoted } from '../shared/token-text';
import type { Translate } from '../../../../views/shared/translate';
import { lengthOf, type IMissingText, type IWrittenText } from './text-facts';
import { isPredicted, surpriseOf } from './token-layout';

/** A token, as a person reads it. */
export const tokenName = ({ piece, text }: Pick<IToken, 'piece' | 'text'>): string =>
  quoted(piece === '' ? text : piece);

/** Say how a generation stands: its place in the queue, or how much of it is written and how fast. */
export function stateWords(
  { message, place, request, seconds, sequences, state, tokens }: IGeneration,
  t: Translate
): string {
  const rate = tokens > 0 && seconds > 0 ? t(', %1 tokens/s', formatNumber(tokens / seconds, 2)) : '';
  const count = formatInteger(tokens);
  const asked = (request?.tokens ?? 64) * Math.max(1, sequences);
  switch (state) {
    case 'queued':
      return place > 0 ? t('waits, place %1 in the queue', formatInteger(place)) : t('waits to be written');
    case 'running':
      return t('%1 of %2 tokens%3', count, formatInteger(asked), rate);
    case 'finished':
      return t('%1 tokens%2', count, rate);
    case 'cancelled':
      return t('cancelled after %1 tokens', count);
    case 'failed':
      return message === '' ? t('failed after %1 tokens', count) : t('failed');
  }
}

/** Name a text: its generation, of which run, how it stands, and what was done to the model. */
export function textTitle(
  { generation, run }: IWrittenText,
  sites: readonly SiteInfo[],
  t: Translate
): string {
  const number = formatInteger(generation.generation);
  const name = run === null ? t('Generation %1', number) : t('Generation %1 of %2', number, run);
  const perturb = generation.control > 0 ? generation.request?.perturb : null;
  const words = [stateWords(generation, t), ...(perturb ? [perturbText(perturb, sites)] : [])];
  return `${name}: ${words.join(' · ')}`;
}

/** The least probable token that the model wrote; of the prompt where it wrote none. */
export function mostSurprising(tokens: readonly IToken[]): IToken | null {
  const written = tokens.filter(({ isPrompt }) => !isPrompt);
  const able = (written.length > 0 ? written : tokens).filter(each => !Number.isNaN(surpriseOf(each)));
  return able.reduce<IToken | null>(
    (most, each) => (most && surpriseOf(most) >= surpriseOf(each) ? most : each),
    null
  );
}

/** Whether the model gave a token no number, where something predicts it. */
export const isLost = (token: IToken): boolean => isPredicted(token) && Number.isNaN(surpriseOf(token));

export const lostWords = (token: IToken, t: Translate): string =>
  t(
    'The probability is not finite first of %1 at position %2.',
    tokenName(token),
    formatInteger(token.position)
  );

export function surpriseWords(token: IToken, t: Translate): string {
  return t(
    'Most surprising: %1 at position %2, %3 bits.',
    tokenName(token),
    formatInteger(token.position),
    formatNumber(surpriseOf(token), 2)
  );
}

/** Say where two texts differ first, or that they do not. */
export function differenceWords(
  text: IWrittenText,
  other: IWrittenText,
  difference: number | null,
  t: Translate
): string {
  if (difference === null) {
    const length = Math.min(lengthOf(text), lengthOf(other));
    return length === 0
      ? t('Nothing of both texts is written yet.')
      : t('Both texts are the same, as far as they are written: %1 tokens.', formatInteger(length));
  }
  const [one, two] = [text, other].map(({ tokens }) =>
    tokens.find(({ position }) => position === difference)
  );
  // Two tokens may look the same.
  const isAlike = one && two && tokenName(one) === tokenName(two);
  const word = (token: IToken | undefined): string =>
    !token
      ? t('nothing')
      : isAlike
        ? t('%1 (id %2)', tokenName(token), formatInteger(token.id))
        : tokenName(token);
  return t('First difference at position %1: %2 and %3.', formatInteger(difference), word(one), word(two));
}

/** Say that what was to be shown beside a text is not there. */
export function missingWords({ generation, run }: IMissingText, t: Translate): string {
  if (run === null) {
    return t('There is no generation %1 to show beside it.', formatInteger(generation ?? NaN));
  }
  return generation === null
    ? t('%1 has no generated text, or cannot be opened.', run)
    : t('%1 has no generation %2, or cannot be opened.', run, formatInteger(generation));
}

/** Say what is known of a token, a line each. */
export function tokenTip(token: IToken, t: Translate): ITip {
  const { entropy, id, isPrompt, position, probability, rank, sampledProbability } = token;
  const known = isPredicted(token);
  const line = (name: string, value: string): ITip['lines'][number] => ({ name, value });
  return {
    heading: tokenName(token),
    lines: [
      line(t('position'), formatInteger(position)),
      line(t('written by'), isPrompt ? t('the prompt') : t('the model')),
      line(t('token id'), formatInteger(id)),
      ...(known
        ? [
            line(t('probability'), formatNumber(probability, 3)),
            ...(isPrompt ? [] : [line(t('after the filters'), formatNumber(sampledProbability, 3))]),
            line(t('surprise'), t('%1 bits', formatNumber(surpriseOf(token), 3))),
            line(t('rank'), rank < 0 ? 'NaN' : formatInteger(rank)),
            line(t('entropy'), t('%1 nats', formatNumber(entropy, 3)))
          ]
        : [line(t('probability'), t('nothing predicts the first token'))]),
      ...(token.text === '' && /<0x/.test(token.piece) ? [line(t('bytes'), t('no whole character yet'))] : [])
    ]
  };
}
