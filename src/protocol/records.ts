export function byName<K extends string, T>(names: readonly K[], make: (name: K) => T): Record<K, T> {
  return Object.fromEntries(names.map(name => [name, make(name)])) as Record<K, T>;
}

/** An object of JSON whose keys are names from outside: flags, streams, parameters. */
type Named<T> = Readonly<Record<string, T>>;

/**
 * What an object has under a name that came from outside; undefined where it has nothing of its own by that
 * name.
 *
 * `object[name]` would answer `constructor`, `toString` or `__proto__` with what every object inherits. The
 * linter's rule `megalens/own-names` leads here; what is kept for longer by such names is a Map.
 */
export function own<T>(object: Named<T> | null | undefined, name: string): T | undefined {
  // eslint-disable-next-line megalens/own-names -- the one place that looks
  return object && Object.hasOwn(object, name) ? object[name] : undefined;
}

/**
 * A copy with another value under a name that came from outside.
 *
 * @param value - undefined leaves the name out.
 */
export function withOwn<T>(object: Named<T>, name: string, value: NoInfer<T> | undefined): Record<string, T> {
  if (value !== undefined) {
    // Unlike an assignment, a literal's computed name makes a member of its own whatever the name is.
    return { ...object, [name]: value };
  }
  return Object.fromEntries(Object.entries(object).filter(([each]) => each !== name));
}

/** The first index from which on a condition holds; `count` where it holds at none. */
export function firstIndex(count: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}
