import { placeBefore, placeNear } from '../shared/places';
import type { IMomentGroups } from '../../store/moment-source';

/** How steps lie on the x axis: as themselves, or as samples consumed. */
export class StepAxis {
  /** @param total - Every step that was logged with its samples, ascending. */
  constructor(
    private readonly _total: Pick<IMomentGroups, 'step' | 'samples'>,
    private readonly _kind: 'step' | 'samples'
  ) {}

  /** Whether samples are known where they are wanted. */
  get isKnown(): boolean {
    return this._kind === 'step' || this._total.samples.every(samples => samples >= 0);
  }

  /** Where a step lies. */
  xOf(step: number): number {
    if (this._kind === 'step') {
      return step;
    }
    return this._total.samples[placeNear(this._total.step, step)] ?? step;
  }

  /** The step that lies nearest to a place. */
  stepNear(x: number): number {
    const xs = this._kind === 'step' ? this._total.step : this._total.samples;
    return this._total.step[placeNear(xs, x)] ?? Math.round(x);
  }

  /** First and last step that lie within a span; null where none does. */
  stepsIn([from, to]: readonly [number, number]): [number, number] | null {
    const xs = this._kind === 'step' ? this._total.step : this._total.samples;
    const last = placeBefore(xs, to);
    const before = placeBefore(xs, from);
    const first = xs[before] === from ? before : before + 1;
    const [start, end] = [this._total.step[first], this._total.step[last]];
    return start === undefined || end === undefined || first > last ? null : [start, end];
  }
}
