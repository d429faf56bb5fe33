import { EMBEDDING, inRanges, isRangeText, parseLayers, rangesText } from '../../protocol/ranges';
import { type Translate, untranslated } from './translate';

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
export function layerWords(layers: readonly number[], t: Translate = untranslated): string {
  const inside = layers.filter(layer => layer !== EMBEDDING);
  const listed = listWords(inside, t);
  const words = inside.length === 1 ? t('layer %1', listed) : t('layers %1', listed);
  return inside.length === layers.length
    ? words
    : inside.length === 0
      ? t('embedding')
      : t('%1 and %2', t('embedding'), words);
}

/** List numbers, ascending: `1 to 4`, `1, 2 and 7`. */
export function listWords(layers: readonly number[], t: Translate = untranslated): string {
  const groups: string[] = [];
  for (let at = 0; at < layers.length;) {
    let end = at;
    while (layers[end + 1] === (layers[end] ?? 0) + 1) {
      end += 1;
    }
    if (end - at >= 2) {
      groups.push(t('%1 to %2', layers[at] ?? 0, layers[end] ?? 0));
    } else {
      groups.push(...layers.slice(at, end + 1).map(String));
    }
    at = end + 1;
  }
  const last = groups.pop() ?? '';
  return groups.length > 0 ? t('%1 and %2', groups.join(', '), last) : last;
}

/**
 * What is wrong with a text of layers, and the nearest that is right; null where nothing is, and where a
 * range is only half written.
 */
export function layersFault(
  text: string,
  existing: readonly number[],
  t: Translate = untranslated
): { readonly message: string; readonly nearest: string } | null {
  if (existing.length === 0 || existing[0] === EMBEDDING || /[-,]\s*$/.test(text)) {
    return null;
  }
  if (!isRangeText(text)) {
    const [low = '', high = ''] = text.split('-').map(each => each.trim());
    return Number(low) > Number(high) && high !== ''
      ? { message: t('%1: the smaller layer comes first.', text), nearest: `${high}-${low}` }
      : {
          message: t('“%1” is no range of layers: “all”, or numbers such as 0-3,7.', text),
          nearest: 'all'
        };
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
    : {
        message: t('%1: this model has %2 here.', wrong.join(',').trim(), layerWords(existing, t)),
        nearest
      };
}
