import { parseLayers } from '../../protocol/layers';

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
  const spans: [number, number][] = [];
  for (const layer of [...existing].sort((a, b) => a - b)) {
    const last = spans.at(-1);
    if (last !== undefined && layer <= last[1] + 1) {
      last[1] = layer;
    } else {
      spans.push([layer, layer]);
    }
  }
  return spans.length === 0
    ? '–'
    : spans.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(', ');
}
