const [ZERO, NINE] = [48, 57];

/**
 * Compare two texts with numbers inside of them as numbers: `layers.2` before `layers.10`. The order is that of Python's `natural_key`.
 *
 * @returns Negative, 0 or positive, as a sort takes it.
 */
export function compareNatural(a: string, b: string): number {
  let [left, right] = [0, 0];
  while (left < a.length && right < b.length) {
    const [one, other] = [a.charCodeAt(left), b.charCodeAt(right)];
    if (!isDigit(one) || !isDigit(other)) {
      if (one !== other) {
        return isDigit(one) ? -1 : isDigit(other) ? 1 : one - other;
      }
      left += 1;
      right += 1;
      continue;
    }
    const [fromLeft, fromRight] = [pastZeros(a, left), pastZeros(b, right)];
    left = pastDigits(a, fromLeft);
    right = pastDigits(b, fromRight);
    // By length first: numbers may be longer than a float64 counts.
    const lengths = left - fromLeft - (right - fromRight);
    for (let at = 0; lengths === 0 && at < left - fromLeft; at += 1) {
      const order = a.charCodeAt(fromLeft + at) - b.charCodeAt(fromRight + at);
      if (order !== 0) {
        return order;
      }
    }
    if (lengths !== 0) {
      return lengths;
    }
  }
  return a.length - left - (b.length - right);
}

function pastZeros(text: string, from: number): number {
  let at = from;
  while (text.charCodeAt(at) === ZERO) {
    at += 1;
  }
  return at;
}

function pastDigits(text: string, from: number): number {
  let at = from;
  while (isDigit(text.charCodeAt(at))) {
    at += 1;
  }
  return at;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}
