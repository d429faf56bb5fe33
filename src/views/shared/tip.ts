/** What a tooltip says: a heading and lines of name and value. */
export interface ITip {
  heading: string;
  lines: readonly { name: string; value: string; color?: string }[];
}
