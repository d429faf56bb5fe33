/** Name layers in words: `layer 3`, `layers 1 to 4`, `layers 1, 2 and 7`. */
export function layerWords(layers: readonly number[]): string {
  return layers.length === 1 ? `layer ${listWords(layers)}` : `layers ${listWords(layers)}`;
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
