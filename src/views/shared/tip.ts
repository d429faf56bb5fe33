/** What a tooltip says: a heading and lines of name and value, perhaps with the value at the pinned step and the difference from it. */
export interface ITip {
  heading: string;
  /** What stands over the columns behind the values, where lines have such. */
  columns?: readonly [string, string];
  lines: readonly { name: string; value: string; color?: string; beside?: readonly [string, string] }[];
}

/** Say a tip in one sentence. */
export const tipSaid = ({ heading, lines }: ITip): string =>
  [heading, ...lines.map(({ name, value }) => `${name} ${value}`)].join(', ');
