/**
 * Return the numbers that a range text names, out of those there are.
 *
 * @param text 'all' or ranges such as '1-4,7'.
 * @param known Numbers that exist, ascending.
 * @returns Ascending, without repeats; empty when none of them exists or the text is not a range text.
 */
export function inRanges(text: string, known: readonly number[]): number[] {
  if (text.trim() === 'all') {
    return [...known];
  }
  const ranges = text.split(',').map(range => /^\s*(\d+)(?:\s*-\s*(\d+))?\s*$/.exec(range));
  if (ranges.some(match => match === null)) {
    return [];
  }
  return known.filter(number =>
    ranges.some(match => {
      const first = Number(match?.[1]);
      return number >= first && number <= Number(match?.[2] ?? first);
    })
  );
}
