import { COLORS } from './colors.generated';

/**
 * Return the hue of a flag, the same in every view.
 *
 * @param flag Trace point by name.
 * @param known Every flag of the run in the order of `hello.flags`; a flag outside it takes the last, neutral colour.
 */
export function flagColor(flag: string, known: readonly string[]): string {
  const place = known.indexOf(flag);
  const hues = COLORS.flags.length - 1;
  return COLORS.flags[place < 0 ? hues : place % hues] ?? COLORS.flags[0];
}
