/**
 * Return the layers that a range text names, out of those there are.
 *
 * @param text 'all' or ranges such as '1-4,7'.
 * @param known Layers that exist, ascending.
 * @returns Ascending, without repeats; empty when none of them exists or the text is not a range text.
 */
export function layersIn(text: string, known: readonly number[]): number[] {
  if (text.trim() === 'all') {
    return [...known];
  }
  const ranges = text.split(',').map(range => /^\s*(\d+)(?:\s*-\s*(\d+))?\s*$/.exec(range));
  if (ranges.some(match => match === null)) {
    return [];
  }
  return known.filter(layer =>
    ranges.some(match => {
      const first = Number(match?.[1]);
      return layer >= first && layer <= Number(match?.[2] ?? first);
    })
  );
}

/** Whether a text is 'all' or ranges such as '1-4,7'. */
export function isLayerText(text: string): boolean {
  return /^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$/.test(text);
}

/** Name layers in words: `layer 3`, `layers 1 to 4`, `layers 1, 2 and 7`. */
export function layerWords(layers: readonly number[]): string {
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
  const list = groups.length > 0 ? `${groups.join(', ')} and ${last}` : last;
  return layers.length === 1 ? `layer ${list}` : `layers ${list}`;
}
