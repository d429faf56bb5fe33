import { placeBefore } from '../places';
import { idOf, mapColumns, type ILine } from './line';

type Steps = readonly [number, number];

/** Lines of one stretch of steps with every point, where the whole is drawn thinned out. */
export class Detail {
  /**
   * Whether what is here suffices to draw some steps.
   *
   * @param whole - Lines that are drawn of everything.
   */
  covers(whole: readonly ILine[], [first, last]: Steps): boolean {
    const [from, to] = this._steps;
    return this.holds(whole, [first, last]) && to - from <= 8 * (last - first + 1);
  }

  /** Whether every point of some steps is here. */
  holds(whole: readonly ILine[], [first, last]: Steps): boolean {
    return whole === this._whole && this._steps[0] <= first && this._steps[1] >= last;
  }

  /** Take lines of a stretch in. */
  take(whole: readonly ILine[], steps: Steps, lines: readonly ILine[]): void {
    const parts = new Map(lines.map(line => [idOf(line), line]));
    this._whole = whole;
    this._steps = steps;
    this._refined = whole.map(line => merged(line, parts.get(idOf(line))));
  }

  /** The lines of the whole, with the stretch that is here in full detail: the same object until something is taken in. */
  refine(whole: readonly ILine[]): readonly ILine[] {
    return whole === this._whole ? this._refined : whole;
  }

  private _refined: readonly ILine[] = [];
  private _steps: Steps = [0, -1];
  private _whole: readonly ILine[] | null = null;
}

function merged(whole: ILine, part: ILine | undefined): ILine {
  const [first, last] = [part?.step[0], part?.step[(part.step.length || 1) - 1]];
  if (part === undefined || first === undefined || last === undefined) {
    return whole;
  }
  // At the ends of the part it is not known how far the points beyond are.
  const inner = new Set(part.step.subarray(2, -1));
  const before = placeBefore(whole.step, first - 0.5) + 1;
  const after = placeBefore(whole.step, last) + 1;
  const join = (a: Float64Array, b: Float64Array): Float64Array => {
    const all = new Float64Array(before + b.length + a.length - after);
    all.set(a.subarray(0, before));
    all.set(b, before);
    all.set(a.subarray(after), before + b.length);
    return all;
  };
  return {
    ...mapColumns(whole, (column, name) => join(column, part[name] ?? new Float64Array(part.x.length))),
    starts: [...new Set([...whole.starts, ...part.starts.filter(step => inner.has(step))])].sort(
      (a, b) => a - b
    )
  };
}
