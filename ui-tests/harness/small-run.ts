import type { ISyntheticShape } from './source';

/** A run that every view has something of: a spike and NaN in statistics, values that are not finite in tensors. */
export const SMALL_RUN: ISyntheticShape = {
  layers: 4,
  positions: 64,
  tiles: 48,
  steps: 120,
  nonFinite: true,
  moments: { layers: 6, steps: 400, spike: 233, bad: 320 }
};
