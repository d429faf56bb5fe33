import { COLORS } from '../../charts';
import { own } from '../../protocol/records';

/**
 * Kinds in the order of the legend, each with the index of its colour in the palette. Greys are left for
 * those who wait.
 */
const PLACES: Readonly<Record<string, number>> = {
  forward: 0,
  backward: 1,
  wgrad: 5,
  optimizer: 2,
  data: 3,
  checkpoint: 6,
  user: 4
};
const WAITING: Readonly<Record<string, readonly [light: string, dark: string]>> = COLORS.waiting;

export const KINDS: readonly string[] = [...Object.keys(PLACES), ...Object.keys(WAITING)];

export function kindColor(kind: string, isDark: boolean): string {
  const waits = own(WAITING, kind);
  if (waits) {
    return isDark ? waits[1] : waits[0];
  }
  const { light, dark } = COLORS.categorical;
  return (isDark ? dark : light)[own(PLACES, kind) ?? 7] ?? COLORS.neutral;
}
