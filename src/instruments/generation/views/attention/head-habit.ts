import { attentionPieces } from '../../store/attention-rows';
import type { IAttentionText } from './attention-text';
import type { IHabit } from './attention-words';
import { headMeasures } from './head-measures';

/** The head that looks most at the first token, or at the one before; null where nothing is known of any. */
export function headHabit(
  { read, sequence }: Pick<IAttentionText, 'read' | 'sequence'>,
  layers: readonly number[],
  heads: readonly number[]
): IHabit | null {
  let best: IHabit | null = null;
  for (const layer of layers) {
    const pieces = attentionPieces(read, layer, sequence);
    for (const kind of ['first', 'before'] as const) {
      const measures = headMeasures(pieces, kind);
      for (const head of heads) {
        const { value = NaN, isBound = false } = measures[head] ?? {};
        if (Number.isFinite(value) && (best === null || value > best.share)) {
          best = { layer, head, kind, share: value, isBound };
        }
      }
    }
  }
  return best;
}
