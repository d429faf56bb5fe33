import { isRangeText } from '../../protocol/ranges';
import type { Control } from './control';

/** Numbers that a line of ranges suggests. */
const MOST_SUGGESTED = 100;

/** Words that say what was chosen, and take it back. */
export const chip = (id: string, text: string, title: string, remove: () => void): Control => ({
  kind: 'chip',
  id,
  text,
  title,
  remove
});

/** A field for a whole number. */
export const numberField = (
  id: string,
  label: string,
  value: number,
  [least, most]: readonly [number, number],
  change: (value: number) => void
): Control => ({ kind: 'number', id, label, value, least, most, change });

/** A line in which ranges of numbers are written, such as `0-3, 7`, or `all`. */
export const rangesField = (
  id: string,
  label: string,
  value: string,
  known: readonly number[],
  change: (value: string) => void,
  valid: (text: string) => boolean = isRangeText
): Control => ({
  kind: 'text',
  id,
  label,
  value,
  suggestions: ['all', ...known.slice(0, MOST_SUGGESTED).map(String)],
  valid,
  change
});
