const FIRST_MS = 250;
const LONGEST_MS = 15_000;

/**
 * How long to wait before a try to come back: doubling from 0.25 s to 15 s, with half of it left to chance so that many viewers do not
 * come back at once.
 *
 * @param attempt - 1 for the first try.
 * @param random - A number from 0 to 1.
 * @returns Milliseconds.
 */
export function backOff(attempt: number, random: number): number {
  const whole = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(attempt - 1, 20));
  return whole / 2 + (whole / 2) * random;
}
