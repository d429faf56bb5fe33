import type { ITextPosition } from '../../store/run-link';
import type { IMark } from './content';
import { around } from './places';
import type { IViewEnvironment } from './view-model';

/**
 * The position of a generated text that a view shows: the pinned one, else the one that is chosen; null follows the newest.
 *
 * @param chosen - What the options ask for.
 * @param text - What the view shows: a position that is pinned in another text means nothing here.
 */
export function positionShown(
  { pinnedPosition: pinned }: Pick<IViewEnvironment, 'pinnedPosition'>,
  chosen: number | null,
  text: Omit<ITextPosition, 'position'>
): number | null {
  const isHere = pinned?.generation === text.generation && pinned.sequence === text.sequence;
  return isHere ? pinned.position : chosen;
}

/** The mark of a position, over the whole height. */
export const columnOf = (position: number): IMark => ({
  facet: null,
  x: around(position),
  y: null
});
