import { COLORS, hexOf, mixed } from '../../../charts';
import { emptyState, type IState } from '../../shared/states';
import type { Translate } from '../../shared/translate';
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

export function dashWords(run: number, t: Translate): string {
  const words = [t('solid'), t('dashed'), t('dotted'), t('dashes and dots')];
  return words[run] ?? t('other dashes');
}

export const dashOf = (run: number): readonly number[] => DASHES[run % DASHES.length] ?? [1, 0];

/**
 * The colour of each line. Groups keep their colour over all runs; one group in several runs takes a colour a
 * run. Few groups that have no order are told apart by the palette that is safe for colour-blind people;
 * layers, and many groups, by an ordered scale.
 */
export function lineColors(
  lines: readonly Pick<ILine, 'group' | 'key' | 'layer' | 'run'>[],
  dark: boolean
): string[] {
  const tone = dark ? 'dark' : 'light';
  const [palette, ramp] = [COLORS.categorical[tone], COLORS.layers[tone]];
  const keys = [...new Set(lines.map(line => line.key))];
  const order = new Map(keys.map((key, at) => [key, at]));
  if (keys.length === 1) {
    return lines.map(({ run, group = run }) => palette[group % palette.length] ?? palette[0]);
  }
  const layers = lines.map(line => line.layer).filter(layer => layer !== null);
  const outside = new Set(lines.filter(line => line.layer === null).map(line => line.key));
  // One line a layer, and perhaps one of what lies outside of the layers.
  const layered =
    outside.size < 2 && layers.length > 1 && new Set(layers).size === keys.length - outside.size;
  const [first, last] = [Math.min(...layers), Math.max(...layers)];
  // Mixed of the two stops beside it, so that two lines have two colours.
  const stop = (share: number): string => hexOf(mixed(ramp, share));
  const own = ordinalColors(keys.length, dark);
  return lines.map(line => {
    if (layered) {
      return line.layer === null
        ? (palette[palette.length - 1] ?? palette[0])
        : stop(last === first ? 0 : (line.layer - first) / (last - first));
    }
    return own[order.get(line.key) ?? 0] ?? palette[0];
  });
}

/** Colours of so many things: few have the palette that is safe for colour-blind people. */
export function ordinalColors(count: number, dark: boolean): readonly string[] {
  const tone = dark ? 'dark' : 'light';
  const [palette, ramp] = [COLORS.categorical[tone], COLORS.layers[tone]];
  return count <= palette.length
    ? palette
    : Array.from({ length: count }, (_, at) => hexOf(mixed(ramp, at / (count - 1))));
}

/** An entry of the legend: lines that are hidden and shown together. */
export interface ILegendEntry {
  readonly id: string;
  readonly name: string;
  readonly color: string;
  readonly isHidden: boolean;
}

/** The names of a picture's lines, by which they are hidden. */
export interface ILegend {
  readonly title: string;
  readonly entries: readonly ILegendEntry[];
  /** Everything that the options hide, also what is not among the entries. */
  readonly hidden: readonly string[];
  readonly hide: (hidden: string[]) => void;
}

/** Most hidden lines that a caption names. */
const MOST_NAMED = 12;

/** What tells a line's entry from others: in saved options as well. */
const entryOf = ({ entry, key }: ILine): string => entry ?? key;

/** The lines that are drawn: the same object where all are. */
export function shownLines(lines: readonly ILine[], hidden: readonly string[]): readonly ILine[] {
  const gone = new Set(hidden);
  return lines.some(line => gone.has(entryOf(line))) ? lines.filter(line => !gone.has(entryOf(line))) : lines;
}

/** Return the legend of lines, hidden ones among them. */
export function legendOf(
  lines: readonly ILine[],
  colors: readonly string[],
  { hidden, ...legend }: Omit<ILegend, 'entries'>
): ILegend {
  const entries = new Map<string, ILegendEntry>();
  lines.forEach((line, at) => {
    const id = entryOf(line);
    if (!line.isFaint && !entries.has(id)) {
      entries.set(id, { id, name: line.label, color: colors[at] ?? '#000', isHidden: hidden.includes(id) });
    }
  });
  return { ...legend, hidden, entries: [...entries.values()] };
}

/**
 * What is hidden once an entry is pressed: it is shown or hidden, and where nothing is left all are shown.
 */
export function toggled({ entries, hidden }: ILegend, id: string): string[] {
  const next = hidden.includes(id) ? hidden.filter(each => each !== id) : [...hidden, id];
  return entries.every(each => next.includes(each.id)) ? without(hidden, entries) : next;
}

/** What is hidden once an entry alone is asked for: all others; nothing where it is alone already. */
export function onlyShown({ entries, hidden }: ILegend, id: string): string[] {
  const others = entries.filter(each => each.id !== id);
  const rest = without(hidden, entries);
  const isAlone = !hidden.includes(id) && others.every(each => hidden.includes(each.id));
  return isAlone ? rest : [...rest, ...others.map(each => each.id)];
}

export function hiddenWords(lines: readonly ILine[], hidden: readonly string[], t: Translate): string[] {
  const { entries } = legendOf(lines, [], { title: '', hidden, hide: () => undefined });
  const names = entries.filter(each => each.isHidden).map(each => each.name);
  const listed = [...names.slice(0, MOST_NAMED), ...(names.length > MOST_NAMED ? ['…'] : [])].join(', ');
  return names.length === 0
    ? []
    : [
        names.length === 1
          ? t('1 line is hidden: %1.', listed)
          : t('%1 lines are hidden: %2.', names.length, listed)
      ];
}

/** What to say where every line is hidden. */
export function allHidden(hide: ILegend['hide'], t: Translate): IState {
  return emptyState(t('Every line here is hidden.'), t('Show all lines'), () => hide([]));
}

const without = (hidden: readonly string[], entries: readonly ILegendEntry[]): string[] =>
  hidden.filter(id => !entries.some(each => each.id === id));
