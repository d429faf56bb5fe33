import type { Lens } from '../../store/lens';

/** From which layer on the token that came in the end is the most probable one. */
export interface ILead {
  /** Of the token that was read. */
  readonly position: number;
  /** The first layer from which on it leads in every layer up to the deepest; null where it does not lead there. */
  readonly layer: number | null;
}

/** Say of every position whose next token is known from which layer on that token leads, by position. */
export function leadsOf(lens: Lens): ILead[] {
  const upwards = [...lens.layers].reverse();
  return lens.positions.flatMap(position => {
    const ranks = upwards.map(layer => lens.rank[lens.rowAt(layer, position)] ?? -1);
    // Of a position that is not read to its end yet nothing is known.
    if (!((ranks[0] ?? -1) >= 0)) {
      return [];
    }
    const loses = ranks.findIndex(rank => rank !== 0);
    const leading = loses < 0 ? ranks.length : loses;
    return [{ position, layer: leading === 0 ? null : (upwards[leading - 1] ?? null) }];
  });
}

/** The layer in the middle of where tokens first lead; of an even number the lower one. NaN where none leads. */
export function medianLayer(leads: readonly ILead[]): number {
  const layers = leads.flatMap(({ layer }) => (layer === null ? [] : [layer])).sort((a, b) => a - b);
  return layers[(layers.length - 1) >> 1] ?? NaN;
}
