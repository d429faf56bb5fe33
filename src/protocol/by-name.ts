/** Make something of each of some names. */
export function byName<K extends string, T>(names: readonly K[], make: (name: K) => T): Record<K, T> {
  return Object.fromEntries(names.map(name => [name, make(name)])) as Record<K, T>;
}
