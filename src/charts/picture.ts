import type { IPixels } from './pixels';
import { encodePng } from './png';

/** What an image mark draws: a canvas where the page has one, else a PNG as a data URL. */
export interface IPicture {
  readonly image: HTMLCanvasElement | null;
  readonly url: string | null;
}

/**
 * Turn pixels into something to draw. A canvas is drawn at once; a URL would first have to be decoded, and flicker.
 *
 * @param before - A picture that is not needed any more: its canvas is painted over where the size is the same.
 */
export function toPicture(pixels: IPixels, before?: IPicture): IPicture {
  if (pixels.width > 0 && pixels.height > 0) {
    const old = before?.image;
    const fits = old?.width === pixels.width && old.height === pixels.height;
    const canvas = fits ? old : newCanvas();
    const context = canvas?.getContext('2d');
    if (canvas && context) {
      if (!fits) {
        canvas.width = pixels.width;
        canvas.height = pixels.height;
      }
      context.putImageData(new ImageData(pixels.data, pixels.width, pixels.height), 0, 0);
      return fits && before ? before : { image: canvas, url: null };
    }
  }
  return { image: null, url: toDataUrl(pixels) };
}

/** Make a canvas; null where there is no page. */
function newCanvas(): HTMLCanvasElement | null {
  return typeof document === 'undefined' ? null : document.createElement('canvas');
}

/** Write pixels as a PNG data URL without a canvas. */
export function toDataUrl(pixels: IPixels): string {
  let binary = '';
  for (const byte of encodePng(pixels)) {
    binary += String.fromCharCode(byte);
  }
  return `data:image/png;base64,${btoa(binary)}`;
}
