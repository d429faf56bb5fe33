import { firstIndex } from '../../protocol/records';

/**
 * Shorten a name with dots in it to `most` characters. Numbers of layers and experts stay, and as much of its
 * end as fits: these tell names apart.
 */
export function shortName(name: string, most: number): string {
  const parts = name.split('.');
  for (let count = parts.length; count > 0; count -= 1) {
    const first = parts.length - count;
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

/**
 * Cut the middle out of a text that is too long: its end tells names apart, and its beginning what they are
 * of.
 */
export function middleCut(text: string, most: number): string {
  const [head, tail] = [Math.floor((most - 1) / 3), Math.ceil((2 * (most - 1)) / 3)];
  return text.length <= most ? text : `${text.slice(0, head)}…${text.slice(-tail)}`;
}

/**
 * Shorten names that stand together: where several would become the same text, each is shown from where it
 * differs.
 */
export function shortNames(
  names: readonly string[],
  most: number,
  cut: (name: string, most: number) => string
): string[] {
  const texts = names.map(name => cut(name, most));
  return texts.map((text, at) => {
    const name = names[at] ?? '';
    const same = names.filter((other, index) => other !== name && texts[index] === text);
    const common = same.map(other =>
      firstIndex(name.length, index => !other.startsWith(name.slice(0, index + 1)))
    );
    const from = Math.max(0, Math.max(...common) - BEFORE);
    const end = from + most - 2;
    return same.length === 0 ? text : `…${name.slice(from, end)}${end < name.length ? '…' : ''}`;
  });
}

/** Characters that are shown before the first one that differs. */
const BEFORE = 4;
