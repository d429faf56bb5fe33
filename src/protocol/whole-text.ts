const HALF = /\p{Surrogate}/u;
const MOST_DEPTH = 32;

/**
 * Whether a JSON value holds whole texts only, names too, and nests no deeper than anything of ours does. Half a surrogate pair can neither be sent
 * nor saved, and makes an address of a checked value throw.
 */
export function isWhole(value: unknown, depth = 0): boolean {
  if (typeof value === 'string') {
    return !HALF.test(value);
  }
  if (typeof value !== 'object' || value === null) {
    return true;
  }
  return (
    depth < MOST_DEPTH &&
    Object.entries(value).every(([name, each]) => !HALF.test(name) && isWhole(each, depth + 1))
  );
}
