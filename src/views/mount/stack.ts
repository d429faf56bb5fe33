import { ViewError } from '../shared/view-error';

const GAP = 16;

/** Put SVG pictures below one another. */
export function stackSVG(pictures: readonly string[]): string {
  if (pictures.length === 1) {
    return pictures[0] ?? '';
  }
  let [width, height] = [0, 0];
  const placed = pictures.map((text, place) => {
    const size = (name: string): number =>
      parseFloat(new RegExp(`^[^>]*\\b${name}="([\\d.]+)"`).exec(text)?.[1] ?? '0');
    const top = height;
    width = Math.max(width, size('width'));
    height += size('height') + GAP;
    // Each picture counts its clips from 0; in one document names must differ.
    return text.replace(/^[^<]*<svg/, `<svg y="${top}"`).replace(/(\bid="|url\(#|href="#)/g, `$1p${place}-`);
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height - GAP}">${placed.join('')}</svg>`;
}

/** Put PNG pictures, as data URLs, below one another on white. */
export async function stackPNG(pictures: readonly string[]): Promise<string> {
  if (pictures.length === 1) {
    return pictures[0] ?? '';
  }
  const images = await Promise.all(
    pictures.map(async url => {
      const image = new Image();
      image.src = url;
      await image.decode();
      return image;
    })
  );
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(...images.map(image => image.naturalWidth));
  canvas.height = images.reduce((sum, image) => sum + image.naturalHeight + GAP, -GAP);
  const context = canvas.getContext('2d');
  if (!context) {
    throw new ViewError('This browser draws no pictures off the page. Save it as SVG.');
  }
  context.fillStyle = '#ffffff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  let top = 0;
  for (const image of images) {
    context.drawImage(image, 0, top);
    top += image.naturalHeight + GAP;
  }
  return canvas.toDataURL('image/png');
}
