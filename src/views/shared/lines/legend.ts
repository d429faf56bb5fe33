import { emptyState, type IState } from '../states';
import type { Translate } from '../translate';
import type { ILine } from './line';

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
  /** Change what the options hide. */
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

/**
 * Return the legend of lines, hidden ones among them.
 *
 * @param colors - Of each line.
 */
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

/** What is hidden once an entry is pressed: it is shown or hidden, and where nothing is left all are shown. */
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

/** Name the lines that are hidden. */
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
