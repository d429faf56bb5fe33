import type { IEffect, IEffects } from '../../store/effects';

/** What a perturbation changed at one position. */
export interface IPositionEffect {
  /** Of the token that was read. */
  readonly position: number;
  /** Nats; NaN where it is not known. */
  readonly kl: number;
  /** Whether the most probable next token is another one; null where that is not known. */
  readonly isChanged: boolean | null;
  /** Relative distance of the hidden states by layer. */
  readonly distances: ReadonlyMap<number, number>;
}

/** What a perturbation changed of one sequence. */
export interface ISequenceEffects {
  /** By position. */
  readonly positions: readonly IPositionEffect[];
  /** Layers whose hidden states were compared, ascending. */
  readonly layers: readonly number[];
  /** First position at which the written texts differ; null where they do not, undefined where that is not known. */
  readonly divergence: number | null | undefined;
}

/** Put the effects on a sequence together, those of a sweep's points left out; of rows of the same place the last one counts. */
export function sequenceEffects({ rows }: IEffects, sequence: number): ISequenceEffects {
  const own = rows.filter(row => row.sequence === sequence && row.point < 0);
  const positions = new Map<number, { kl: number; changed: number; distances: Map<number, number> }>();
  let divergence: number | null | undefined;
  for (const row of own) {
    if (row.position < 0) {
      divergence = row.layer < 0 ? divergenceOf(row) : divergence;
      continue;
    }
    const at = positions.get(row.position) ?? { kl: NaN, changed: NaN, distances: new Map<number, number>() };
    positions.set(row.position, at);
    if (row.layer < 0) {
      [at.kl, at.changed] = [row.kl, row.changed];
    } else {
      at.distances.set(row.layer, row.distance);
    }
  }
  return {
    positions: [...positions]
      .sort(([a], [b]) => a - b)
      .map(([position, { kl, changed, distances }]) => ({
        position,
        kl,
        isChanged: Number.isNaN(changed) ? null : changed > 0,
        distances
      })),
    layers: layersOf(own),
    divergence
  };
}

/** Layers of rows, ascending. */
export function layersOf(rows: readonly IEffect[]): number[] {
  return [...new Set(rows.filter(({ layer }) => layer >= 0).map(({ layer }) => layer))].sort((a, b) => a - b);
}

/** First position at which a text differs; null where it does not. */
export function divergenceOf({ divergence }: Pick<IEffect, 'divergence'>): number | null {
  return divergence >= 0 ? divergence : null;
}
