import { placeBefore, placeNear } from '../places';

/** How steps lie on the x axis: as themselves, or as what was consumed or had passed by then. */
export class StepAxis {
  /**
   * @param steps - Ascending.
   * @param xs - Where each lies, ascending; absent where steps are the axis.
   */
  constructor(
    readonly steps: ArrayLike<number>,
    private readonly _xs: ArrayLike<number> | null = null
  ) {}

  /** Where a step lies. */
  xOf(step: number): number {
    return this._xs === null ? step : (this._xs[placeNear(this.steps, step)] ?? step);
  }

  /** The step of a point that lies at a place, also of one that is not among the steps here. */
  stepAt(x: number): number {
    return this._xs === null ? x : this.stepNear(x);
  }

  /** The step that lies nearest to a place. */
  stepNear(x: number): number {
    return this.steps[placeNear(this._xs ?? this.steps, x)] ?? Math.round(x);
  }

  /** Steps that a span lies between: the last one at or before it, and the first one at or after it. */
  stepsAround([from, to]: readonly [number, number]): [number, number] {
    if (this._xs === null) {
      return [Math.floor(from), Math.ceil(to)];
    }
    const before = Math.max(0, placeBefore(this._xs, from));
    const last = placeBefore(this._xs, to);
    const after = this._xs[last] === to ? last : last + 1;
    const end = this.steps.length - 1;
    return [this.steps[before] ?? from, this.steps[Math.min(end, after)] ?? to];
  }

  /** First and last step that lie within a span; null where none does. */
  stepsIn([from, to]: readonly [number, number]): [number, number] | null {
    const xs = this._xs ?? this.steps;
    const last = placeBefore(xs, to);
    const before = placeBefore(xs, from);
    const first = xs[before] === from ? before : before + 1;
    const [start, end] = [this.steps[first], this.steps[last]];
    return start === undefined || end === undefined || first > last ? null : [start, end];
  }
}
