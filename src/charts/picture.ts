import type { IPixels } from './pixels';
import { encodePng } from './png';

/** What an image mark draws: a canvas where the page has one, else a PNG as a data URL. */
export interface IPicture {
  readonly image: HTMLCanvasElement | null;
  readonly url: string | null;
}

/** Turn pixels into something to draw. A canvas is drawn at once; a URL would first have to be decoded, and flicker. */
export function toPicture(pixels: IPixels): IPicture {
  if (pixels.width > 0 && pixels.height > 0) {
    const canvas = document.createElement('canvas');
    const context = canvas.getContext('2d');
    if (context !== null) {
      canvas.width = pixels.width;
      canvas.height = pixels.height;
      context.putImageData(new ImageData(pixels.data, pixels.width, pixels.height), 0, 0);
      return { image: canvas, url: null };
    }
  }
  return { image: null, url: toDataUrl(pixels) };
}

/** Write pixels as a PNG data URL without a canvas. */
export function toDataUrl(pixels: IPixels): string {
  let binary = '';
  for (const byte of encodePng(pixels)) {
    binary += String.fromCharCode(byte);
  }
  return `data:image/png;base64,${btoa(binary)}`;
}
