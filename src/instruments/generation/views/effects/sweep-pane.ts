import { formatInteger } from '../../../../charts';
import { isUnderWay, type IGeneration } from '../../store/generations';
import type { IMark, IMoved, INote, Loaded } from '../../../../views/shared/content';
import { Pictured } from '../../../../views/shared/pictured';
import { again } from '../../../../views/shared/states';
import { noDistances, otherEffects, type IEffectsAsked } from './effects-states';
import {
  effectsCaption,
  effectsTitle,
  type IEffectsPane,
  type IEffectsRead,
  type IEffectsSubject
} from './effects-subject';
import { pointRequest, requestCode, settingWords } from './perturbation';
import { layersOf } from './position-facts';
import { sweepOf, type ISweep } from './sweep-facts';
import { SweepPicture } from './sweep-picture';

/** A measure over the points of a sweep, how far the sweep is, and what runs one point of it alone. */
export class SweepPane extends Pictured implements IEffectsPane {
  constructor(
    private readonly _of: IEffectsSubject,
    private readonly _asked: () => IEffectsAsked
  ) {
    super();
    this._picture = new SweepPicture(_of.env.t);
  }

  async load(read: IEffectsRead): Promise<Loaded> {
    const { options, isDark, t } = this._of.env;
    const { generation } = read;
    const sweep = sweepOf(read.effects);
    if (sweep.points.length === 0) {
      return { state: otherEffects(this._asked(), ['positions'], t) };
    }
    if (options.measure === 'distance' && layersOf(sweep.rows).length === 0) {
      return { state: noDistances(this._asked(), t) };
    }
    const { sweep: wished } = generation.request ?? {};
    const total = wished?.values.length ?? sweep.points.length;
    const picture = this._picture.draw(sweep, wished?.over ?? null, options, isDark);
    const { left, summary } = this._picture;
    const isPartial = sweep.points.length < total && !isUnderWay(generation);
    return {
      content: {
        ...picture,
        title: effectsTitle(read, this._of),
        caption: effectsCaption(read, this._of, [
          ...(isPartial ? [this._doneWords(sweep, total)] : []),
          ...(left > 0
            ? [t('Settings of 0 or less have no place on a logarithmic axis, left out: %1.', left)]
            : [])
        ]),
        summary,
        notes: [
          ...(isUnderWay(generation) ? [this._progress(generation, sweep, total)] : []),
          ...this._pointNote(generation, sweep)
        ]
      }
    };
  }

  get insight(): IMark | null {
    return this._picture.insight;
  }

  protected override get drawn(): SweepPicture {
    return this._picture;
  }

  override move(key: string): IMoved | null {
    const moved = this._picture.move(key === 'Enter' ? 'copy' : key);
    if (moved === null || key !== 'Enter') {
      return moved;
    }
    this.clicked(moved.mark);
    return { said: moved.said, mark: moved.mark };
  }

  /** The setting of the point is shown, with what runs it alone; or not any more. */
  clicked(mark: IMark): void {
    const point = this._picture.pointOf(mark)?.point;
    if (point !== undefined) {
      this._choose(point === this._chosen ? null : point);
    }
  }

  pinned(): IMark | null {
    return this._chosen === null ? null : this._picture.markOfPoint(this._chosen);
  }

  private _choose(point: number | null): void {
    this._chosen = point;
    this._of.env.refresh(true);
  }

  private _doneWords({ points }: ISweep, total: number): string {
    const { t } = this._of.env;
    return t('%1 of %2 points are done.', formatInteger(points.length), formatInteger(total));
  }

  /** How far a sweep is, and a way to end it. */
  private _progress({ generation }: IGeneration, sweep: ISweep, total: number): INote {
    const { source, env } = this._of;
    const { actions, t } = env;
    const cancel = (): void => {
      source.cancelGeneration?.(generation).catch(reason => env.fail(reason));
    };
    return {
      text: this._doneWords(sweep, total),
      action: source.cancelGeneration ? { label: t('Cancel'), run: cancel } : again(actions, t)
    };
  }

  private _pointNote({ request }: IGeneration, { points }: ISweep): INote[] {
    const { actions, t } = this._of.env;
    const point = points.find(each => each.point === this._chosen);
    if (!point) {
      return [];
    }
    const name = settingWords(request?.sweep?.over ?? null, point.setting, point.value, t);
    const alone = pointRequest(request, point.setting, point.value);
    const code = alone && requestCode(alone);
    return [
      code === null
        ? { text: name, action: { label: t('Close'), run: () => this._choose(null) } }
        : {
            text: t('%1: %2', name, code),
            action: { label: t('Copy as code'), run: () => void actions.copy(code) }
          }
    ];
  }

  private readonly _picture: SweepPicture;
  /** Point that was clicked. */
  private _chosen: number | null = null;
}
