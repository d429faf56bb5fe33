import type { ITextPosition } from '../../store/run-link';
import type { IViewEnvironment } from './view-model';

/** The position of a generated text that a view shows: the pinned one, until another is chosen by hand. */
export class PositionShown {
  constructor(private readonly _env: Pick<IViewEnvironment, 'pinnedPosition'>) {}

  /**
   * Return the position to show; null follows the newest.
   *
   * @param chosen - What the options ask for.
   * @param text - What the view shows: a position that is pinned in another text means nothing here.
   */
  of(chosen: number | null, text: Omit<ITextPosition, 'position'>): number | null {
    const { pinnedPosition: pinned } = this._env;
    this._left = pinned === null ? null : this._left;
    const isHere = pinned?.generation === text.generation && pinned.sequence === text.sequence;
    return isHere && pinned !== this._left ? pinned.position : chosen;
  }

  /** Another position is chosen by hand: the one that is pinned now is not gone to any more. */
  leave(): void {
    this._left = this._env.pinnedPosition;
  }

  private _left: ITextPosition | null = null;
}
