import { EMBEDDING, inRanges } from '../../protocol/ranges';
import type { Translate } from './translate';

/**
 * The layers that a range text chooses of those there are. The embedding has no layer to choose, and is
 * always drawn.
 */
export function chosenLayers(text: string, known: readonly number[]): number[] {
  return known.every(layer => layer === EMBEDDING) ? [...known] : inRanges(text, known);
}

/** Name one layer: `layer 3`, or `embedding` for what is no layer's. */
export function layerName(layer: number, t: Translate): string {
  return layer === EMBEDDING ? t('embedding') : t('layer %1', layer);
}

/** Name layers in words: `layer 3`, `layers 0 to 3`, `layers 0, 1 and 7`, `embedding`. */
export function layerWords(layers: readonly number[]): string {
  const inside = layers.filter(layer => layer !== EMBEDDING);
  const words = `${inside.length === 1 ? 'layer' : 'layers'} ${listWords(inside)}`;
  return [
    ...(inside.length < layers.length ? ['embedding'] : []),
    ...(inside.length > 0 ? [words] : [])
  ].join(' and ');
}

/** List numbers, ascending: `1 to 4`, `1, 2 and 7`. */
export function listWords(layers: readonly number[]): string {
  const groups: string[] = [];
  for (let at = 0; at < layers.length;) {
    let end = at;
    while (layers[end + 1] === (layers[end] ?? 0) + 1) {
      end += 1;
    }
    if (end - at >= 2) {
      groups.push(`${layers[at]} to ${layers[end]}`);
    } else {
      groups.push(...layers.slice(at, end + 1).map(String));
    }
    at = end + 1;
  }
  const last = groups.pop() ?? '';
  return groups.length > 0 ? `${groups.join(', ')} and ${last}` : last;
}
