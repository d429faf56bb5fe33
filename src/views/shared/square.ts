import type { IContent } from './content';

/** Pixels of a plot. */
interface IPixels {
  readonly width: number;
  readonly height: number;
}

/** Widen one axis of an extent about its middle until a unit is as long across as down. */
export function squareExtent({ x, y }: IContent['extent'], { width, height }: IPixels): IContent['extent'] {
  if (!(width > 0 && height > 0)) {
    return { x, y };
  }
  const unit = Math.max((x[1] - x[0]) / width, (y[1] - y[0]) / height);
  const about = ([low, high]: readonly [number, number], pixels: number): readonly [number, number] => {
    const [middle, half] = [(low + high) / 2, (unit * pixels) / 2];
    return [middle - half, middle + half];
  };
  return { x: about(x, width), y: about(y, height) };
}
