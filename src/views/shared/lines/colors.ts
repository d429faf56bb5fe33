import { COLORS, hexOf, mixed } from '../../../charts';
import type { Translate } from '../translate';
import type { ILine } from './line';

/** Dashes of the runs of a comparison, pixels; this run's lines are solid. */
const DASHES: readonly (readonly number[])[] = [
  [1, 0],
  [6, 3],
  [2, 3],
  [8, 3, 2, 3],
  [12, 4],
  [4, 2],
  [1, 2],
  [10, 2, 2, 2]
];

/** Name a run's dash. */
export function dashWords(run: number, t: Translate): string {
  const words = [t('solid'), t('dashed'), t('dotted'), t('dashes and dots')];
  return words[run] ?? t('other dashes');
}

/** Return the dash of a run's lines. */
export const dashOf = (run: number): readonly number[] => DASHES[run % DASHES.length] ?? [1, 0];

/**
 * Return the colour of each line. Groups keep their colour over all runs; one group in several runs takes a colour a run. Few groups that have no
 * order are told apart by the palette that is safe for colour-blind people; layers, and many groups, by an ordered scale.
 */
export function lineColors(lines: readonly ILine[], dark: boolean): string[] {
  const tone = dark ? 'dark' : 'light';
  const [palette, ramp] = [COLORS.categorical[tone], COLORS.layers[tone]];
  const keys = [...new Set(lines.map(line => line.key))];
  const places = new Map(keys.map((key, at) => [key, at]));
  if (keys.length === 1) {
    return lines.map(line => palette[line.run % palette.length] ?? palette[0]);
  }
  const layers = lines.map(line => line.layer).filter(layer => layer !== null);
  const outside = new Set(lines.filter(line => line.layer === null).map(line => line.key));
  // One line a layer, and perhaps one of what lies outside of the layers.
  const layered =
    outside.size < 2 && layers.length > 1 && new Set(layers).size === keys.length - outside.size;
  const [first, last] = [Math.min(...layers), Math.max(...layers)];
  // Mixed of the two stops beside it, so that two lines have two colours.
  const stop = (share: number): string => hexOf(mixed(ramp, share));
  return lines.map(line => {
    if (layered) {
      return line.layer === null
        ? (palette[palette.length - 1] ?? palette[0])
        : stop(last === first ? 0 : (line.layer - first) / (last - first));
    }
    const at = places.get(line.key) ?? 0;
    return keys.length <= palette.length ? (palette[at] ?? palette[0]) : stop(at / (keys.length - 1));
  });
}
