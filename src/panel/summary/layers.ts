import { parseLayers, rangesText } from '../../protocol/ranges';

/** How many layers a range text names; 0 when it names none or is no range. */
export function countLayers(text: string, existing: readonly number[]): number {
  try {
    return parseLayers(text, existing).length;
  } catch {
    return 0;
  }
}

/** The layers that exist, in words: `1–4`, or `2, 4–6` where some lack it. */
export function layerSpan(existing: readonly number[]): string {
  return rangesText(existing, '–', ', ') || '–';
}
