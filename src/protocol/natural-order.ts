/**
 * Compare two texts with numbers inside of them as numbers: `layers.2` before `layers.10`. The order is that of Python's `natural_key`.
 *
 * @returns Negative, 0 or positive, as a sort takes it.
 */
export function compareNatural(a: string, b: string): number {
  const left = partsOf(a);
  const right = partsOf(b);
  for (let at = 0; at < left.length && at < right.length; at += 1) {
    const order = compareParts(left[at] ?? '', right[at] ?? '');
    if (order !== 0) {
      return order;
    }
  }
  return left.length - right.length;
}

function partsOf(text: string): string[] {
  return text.match(/[0-9]+|[^0-9]+/g) ?? [];
}

function compareParts(a: string, b: string): number {
  const [numberA, numberB] = [isDigits(a), isDigits(b)];
  if (numberA !== numberB) {
    return numberA ? -1 : 1;
  }
  if (!numberA) {
    return a < b ? -1 : a > b ? 1 : 0;
  }
  // By length first: numbers may be longer than a float64 counts.
  const [left, right] = [a.replace(/^0+/, ''), b.replace(/^0+/, '')];
  return left.length - right.length || (left < right ? -1 : left > right ? 1 : 0);
}

function isDigits(part: string): boolean {
  return /^[0-9]/.test(part);
}
