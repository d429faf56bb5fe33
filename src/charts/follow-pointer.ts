export interface IPointerFollower {
  move(event: PointerEvent): void;
  /** The pointer went up; after `released`. */
  up?(): void;
  /** Nothing is followed any more, whatever ended it. */
  released?(): void;
}

/**
 * Follow a pointer over the whole page until it goes up or is taken away.
 * @returns Ends it before.
 */
export function followPointer(follower: IPointerFollower): () => void {
  const move = (event: PointerEvent): void => follower.move(event);
  const release = (): void => {
    document.removeEventListener('pointermove', move);
    document.removeEventListener('pointerup', up);
    document.removeEventListener('pointercancel', release);
    follower.released?.();
  };
  const up = (): void => {
    release();
    follower.up?.();
  };
  document.addEventListener('pointermove', move);
  document.addEventListener('pointerup', up);
  document.addEventListener('pointercancel', release);
  return release;
}
