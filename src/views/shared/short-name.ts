/**
 * Shorten a name with dots in it. Numbers of layers and experts stay, and as much of its end as there is room for: these tell names apart.
 *
 * @param most Most characters.
 */
export function shortName(name: string, most: number): string {
  const parts = name.split('.');
  for (let kept = parts.length; kept > 0; kept -= 1) {
    const first = parts.length - kept;
    const text = parts
      .map((part, at) => (at >= first || /^\d+$/.test(part) ? part : '…'))
      .join('.')
      .replace(/\.?(?:…\.)+/g, '…');
    if (text.length <= most) {
      return text;
    }
  }
  return `…${name.slice(1 - most)}`;
}

/** Cut the middle out of a text that is too long: its end tells names apart, and its beginning what they are of. */
export function middleCut(text: string, most: number): string {
  const [head, tail] = [Math.floor((most - 1) / 3), Math.ceil((2 * (most - 1)) / 3)];
  return text.length <= most ? text : `${text.slice(0, head)}…${text.slice(-tail)}`;
}
