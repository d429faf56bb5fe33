import { parseLayers } from '../protocol/layers';

/** How many layers a range text names; 0 when it names none or is no range. */
export function countLayers(text: string, existing: readonly number[]): number {
  try {
    return parseLayers(text, existing).length;
  } catch {
    return 0;
  }
}

/** The span of the layers that exist, in words: `1–4`. */
export function layerSpan(existing: readonly number[]): string {
  const first = existing[0];
  const last = existing[existing.length - 1];
  return first === undefined || last === undefined ? '–' : first === last ? `${first}` : `${first}–${last}`;
}
