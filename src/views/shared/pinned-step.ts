import { formatInteger, formatNumber } from '../../charts';
import type { ITextPosition } from '../../store/run-link';
import type { ConnectionState } from '../../store/source';
import type { IMark } from './content';
import type { Control } from './control';
import { goControl, stepsControl } from './controls';
import { around } from './scale';
import type { ITip } from './table';
import type { Translate } from './translate';
import type { IViewEnvironment } from './view-model';

/**
 * The position of a generated text that a view shows: the pinned one, else the chosen one; null follows the
 * newest. A position that is pinned in another text than the view's means nothing here.
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

/** The step of a picture of one step: the pinned one, until another is chosen by hand. */
export class StepShown {
  constructor(private readonly _env: Pick<IViewEnvironment, 'pinned' | 'refresh'>) {}

  /** The slider over the steps there are, and the line in which one is written to go there. */
  controls(
    steps: readonly number[],
    chosen: number | null,
    connection: ConnectionState,
    choose: (options: { step: number | null }) => void,
    t: Translate
  ): Control[] {
    const change = (step: number | null): void => {
      this.leave();
      choose({ step });
    };
    return [stepsControl(steps, this.of(chosen), connection, change, t), goControl(change, t)];
  }

  /** The step to show, of the one that the options ask for; null follows the newest. */
  of(chosen: number | null): number | null {
    const { pinned } = this._env;
    this._left = pinned === null ? null : this._left;
    return pinned === null || pinned === this._left ? chosen : pinned;
  }

  /** Another step is chosen by hand: the one that is pinned now is not gone to any more. */
  leave(): void {
    this._left = this._env.pinned;
    this._env.refresh(false);
  }

  private _left: number | null = null;
}

/** What stands over the columns of a tip that tell of the pinned step. */
export const pinnedColumns = (step: number, t: Translate): NonNullable<ITip['columns']> => [
  t('at step %1', formatInteger(step)),
  t('difference')
];

/**
 * Say a value at the pinned step, and how far the one under the cursor is from it; `last` is where it was
 * measured, if before.
 */
export function besideWords(
  now: number,
  then: number,
  t: Translate,
  last: number | null = null
): readonly [string, string] {
  const text = formatNumber(then, 4);
  const away = last === null && Number.isFinite(now - then) ? now - then : null;
  return [
    last === null ? text : t('%1 (step %2)', text, formatInteger(last)),
    away === null ? '' : `${away > 0 ? '+' : ''}${formatNumber(away, 4)}`
  ];
}
