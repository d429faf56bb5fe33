import { isUnderWay } from '../../store/generations';
import type { IWrittenText } from './text-facts';

type Text = Pick<IWrittenText, 'generation' | 'tokens'>;

/**
 * The first position at which two texts differ: another token, or the end of one. Null where they are the same as far as both are written: of one that is
 * written now nobody knows how it goes on.
 */
export function firstDifference(one: Text, other: Text): number | null {
  const others = new Map(other.tokens.map(token => [token.position, token]));
  for (const { position, id, piece } of one.tokens) {
    const beside = others.get(position);
    if (beside !== undefined && (beside.id !== id || beside.piece !== piece)) {
      return position;
    }
  }
  const [end, otherEnd] = [lengthOf(one), lengthOf(other)];
  const shorter = end < otherEnd ? one : other;
  return end === otherEnd || isUnderWay(shorter.generation) ? null : Math.min(end, otherEnd);
}

/** Positions of a text as far as it is written. */
export const lengthOf = ({ tokens }: Pick<IWrittenText, 'tokens'>): number =>
  (tokens[tokens.length - 1]?.position ?? -1) + 1;
