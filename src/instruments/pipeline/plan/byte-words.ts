/** Bytes with three digits. */
export function byteWords(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB', 'PB'];
  const power = units.filter((_, at) => at > 0 && bytes >= 1000 ** at).length;
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`;
}
