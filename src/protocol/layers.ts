import { ProtocolError } from './protocol-error';

/**
 * The layers that a range text names, in order.
 *
 * @param text - `'all'`, or ranges such as `'1-4,7'`.
 * @param existing - Layers that there are.
 * @param field - Dotted path for the error.
 * @throws ProtocolError `unknown-layer` when a named layer does not exist or the text is no range.
 */
export function parseLayers(text: string, existing: Iterable<number>, field = 'layers'): number[] {
  const known = [...new Set(existing)].sort((a, b) => a - b);
  if (text === 'all') {
    return known;
  }
  const span = known.length > 0 ? `${known[0]}–${known[known.length - 1]}` : 'none';
  const wanted = new Set<number>();
  for (const piece of text.split(',')) {
    const match = /^\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*$/.exec(piece);
    if (match === null) {
      throw new ProtocolError(
        'unknown-layer',
        `'${text.slice(0, 100)}' is not a layer range. Write 'all', '3', '1-4' or '1-4,7'.`,
        { field, expected: 'all, 3, 1-4 or 1-4,7', got: piece.slice(0, 100) }
      );
    }
    const low = Number(match[1]);
    const high = Number(match[2] ?? match[1]);
    if (low > high || !known.includes(low) || !known.includes(high)) {
      throw new ProtocolError(
        'unknown-layer',
        `Layers ${piece.trim()} do not all exist here. This model has layers ${span}.`,
        { field, expected: span, got: String(known.includes(low) ? high : low) }
      );
    }
    known.filter(layer => low <= layer && layer <= high).forEach(layer => wanted.add(layer));
  }
  return [...wanted].sort((a, b) => a - b);
}
