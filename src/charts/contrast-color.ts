import { channels } from './color-scale';

/** Black or white: that of the two which is read better on a colour `#rrggbb`, by the contrast ratio of WCAG 2. */
export function contrastColor(background: string): '#000000' | '#ffffff' {
  const [red = 0, green = 0, blue = 0] = channels(background).map(channel => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) ** 2 > 1.05 * 0.05 ? '#000000' : '#ffffff';
}
