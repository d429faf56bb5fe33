import type { IRecipe, Zoom } from '../../charts';
import type { IContent } from '../shared/content';
import { stretch } from './stretch';

/** What the first rows of a table below the picture take, pixels. */
const TABLE = 220;

/**
 * Return what to draw: the part of a picture that is zoomed into, as high as its frame asks.
 *
 * @returns Null where the view shows no picture.
 * @param frame Pixels that the whole view may take; 0 where it has no frame.
 */
export function fitRecipe(content: IContent, zoom: Zoom | null, frame: number): IRecipe | null {
  const { recipe, body, extent, home, legend, rows = 1 } = content;
  if (recipe === null) {
    return null;
  }
  const domain = Object.entries(zoom?.extent(extent.x, extent.y, home) ?? {});
  const shown = Object.fromEntries(domain.filter(([name]) => Object.hasOwn(recipe.params, name)));
  const height = recipe.height && stretch(recipe.height, rows, body ? frame - TABLE : frame);
  return {
    ...recipe,
    ...(height ? { height } : {}),
    ...(legend ? { unkeyed: true } : {}),
    params: { ...recipe.params, ...shown }
  };
}
