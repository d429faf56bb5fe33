import type { ColorScale } from './color-scale';
import { toPicture, type IPicture } from './picture';
import { paint, type IMatrix, type IPixels } from './pixels';

interface IKept {
  matrix: IMatrix;
  scale: string;
  pixels: IPixels;
  picture: IPicture;
}

/**
 * The pictures of one view by key, one for each and no more: while its size stays, a picture is painted over in place. A canvas for
 * each step would be ten a second and plot, each with memory that only a full collection gives back.
 */
export class Pictures {
  /** Counts the paintings. */
  get painted(): number {
    return this._painted;
  }

  /** Return the picture of a matrix; painted again only when matrix or scale are other ones than before. */
  draw(key: unknown, matrix: IMatrix, scale: ColorScale): IPicture {
    // A value on the way tells scales apart that have the same ends and another bend, the middle colour those of light and dark pages.
    const colors = `${scale.domain.join()} ${scale.transform} ${scale.valueAt(0.7)} ${scale.colorAt(0.5)}`;
    const before = this._kept.get(key);
    if (before?.matrix === matrix && before.scale === colors) {
      return before.picture;
    }
    const pixels = paint(matrix, scale, before?.pixels);
    const kept = { matrix, scale: colors, pixels, picture: toPicture(pixels, before?.picture) };
    this._kept.set(key, kept);
    this._painted += 1;
    return kept.picture;
  }

  /** Let go of every picture but these. */
  keep(keys: readonly unknown[]): void {
    for (const key of this._kept.keys()) {
      if (!keys.includes(key)) {
        this._kept.delete(key);
      }
    }
  }

  private readonly _kept = new Map<unknown, IKept>();
  private _painted = 0;
}
