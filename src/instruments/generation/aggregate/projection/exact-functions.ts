const LN2 = 0.6931471805599453;

/**
 * `Math.exp`, `Math.log` and powers out of nothing but the four operations, which have one answer everywhere. Those of the language may differ in their last digit from browser
 * to browser, and a layout that is found by many small moves would end somewhere else.
 */
export function exactExp(x: number): number {
  if (!(x > -745)) {
    return 0;
  }
  const halvings = Math.round(x / LN2);
  const rest = x - halvings * LN2;
  let term = 1;
  let sum = 1;
  for (let order = 1; order <= 16; order += 1) {
    term *= rest / order;
    sum += term;
  }
  return sum * powerOfTwo(halvings);
}

/** Natural logarithm of a number above 0. */
export function exactLog(x: number): number {
  let exponent = 0;
  let mantissa = x;
  while (mantissa > 1.5) {
    mantissa /= 2;
    exponent += 1;
  }
  while (mantissa < 0.75) {
    mantissa *= 2;
    exponent -= 1;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)), with an argument of at most 1/5.
  const part = (mantissa - 1) / (mantissa + 1);
  const square = part * part;
  let power = part;
  let sum = 0;
  for (let order = 1; order <= 23; order += 2) {
    sum += power / order;
    power *= square;
  }
  return 2 * sum + exponent * LN2;
}

/** A number above 0 to any power. */
export function exactPower(x: number, power: number): number {
  return exactExp(power * exactLog(x));
}

function powerOfTwo(exponent: number): number {
  let value = 1;
  for (let left = Math.abs(exponent); left > 0; left -= 1) {
    value *= exponent < 0 ? 0.5 : 2;
  }
  return value;
}
