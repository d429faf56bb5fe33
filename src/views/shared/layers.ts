import { EMBEDDING, inRanges, isRangeText, parseLayers, rangesText } from '../../protocol/ranges';
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

/**
 * What is wrong with a text of layers, and the nearest that is right; null where nothing is, and where a
 * range is only half written.
 */
export function layersFault(
  text: string,
  existing: readonly number[]
): { readonly message: string; readonly nearest: string } | null {
  if (existing.length === 0 || existing[0] === EMBEDDING || /[-,]\s*$/.test(text)) {
    return null;
  }
  if (!isRangeText(text)) {
    const [low = '', high = ''] = text.split('-').map(each => each.trim());
    return Number(low) > Number(high) && high !== ''
      ? { message: `${text}: the smaller layer comes first.`, nearest: `${high}-${low}` }
      : { message: `“${text}” is no range of layers: “all”, or numbers such as 0-3,7.`, nearest: 'all' };
  }
  const wrong = text.split(',').filter(piece => {
    try {
      return parseLayers(piece, existing).length === 0;
    } catch {
      return true;
    }
  });
  const [first = 0, last = 0] = [existing[0], existing.at(-1)];
  const [least = NaN] = /\d+/.exec(text) ?? [];
  const nearest = rangesText(inRanges(text, existing)) || `${Number(least) < first ? first : last}`;
  return wrong.length === 0
    ? null
    : { message: `${wrong.join(',').trim()}: this model has ${layerWords(existing)} here.`, nearest };
}
