/**
 * Vega keeps what it groups by in plain objects, where this one text is no key: the first picture is drawn, and every later change throws.
 * A word joiner, which has neither a shape nor a width, makes it another text.
 */
const [NAME, KEPT] = ['__proto__', '__proto__\u2060'];

/** Values as Vega can take them: of rows, of params, of lists of these. What needs no change is returned as it is. */
export function toVega<T>(value: T): T {
  return replaced(value, NAME, KEPT) as T;
}

/** What `toVega` was given, from what Vega answers. */
export function fromVega<T>(value: T): T {
  return replaced(value, KEPT, NAME) as T;
}

// Objects of a class, such as canvases, are not looked into. Rows are many: nothing is copied where nothing differs.
function replaced(value: unknown, from: string, to: string): unknown {
  if (typeof value !== 'object' || value === null) {
    return value === from ? to : value;
  }
  const differs = (each: unknown): boolean => replaced(each, from, to) !== each;
  if (Array.isArray(value)) {
    return value.some(differs) ? value.map(each => replaced(each, from, to)) : value;
  }
  if (Object.getPrototypeOf(value) !== Object.prototype || !Object.values(value).some(differs)) {
    return value;
  }
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, replaced(each, from, to)]));
}
