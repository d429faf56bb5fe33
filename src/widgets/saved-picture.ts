import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

const HTML = 'text/html';

/** Return the SVG text that a cell's output holds beside a view, or null. */
export function savedPicture(data: ReadonlyPartialJSONObject): string | null {
  const html = data[HTML];
  const joined = Array.isArray(html) ? html.join('') : html;
  if (typeof joined !== 'string') {
    return null;
  }
  const [start, end] = [joined.indexOf('<svg'), joined.lastIndexOf('</svg>')];
  return start < 0 || end < start ? null : joined.slice(start, end + '</svg>'.length);
}

/**
 * Return the output with the picture in place of the old one, or before the caption when there was nothing to
 * draw yet. Without a new picture, or without either, it is returned as it is.
 */
export function withPicture(data: ReadonlyPartialJSONObject, svg: string | null): ReadonlyPartialJSONObject {
  const old = savedPicture(data);
  const html = data[HTML];
  const joined = Array.isArray(html) ? html.join('') : html;
  const slot = old ?? '<figcaption>';
  if (svg === null || typeof joined !== 'string' || !joined.includes(slot)) {
    return data;
  }
  return { ...data, [HTML]: joined.replace(slot, () => (old === null ? svg + slot : svg)) };
}
