import { indexBefore } from '../../shared/scale';
import { idOf, type ILine, mapColumns } from './line';

type ExactSteps = readonly [number, number];

/** Reads every point that a run's lines have in some steps. */
export type ReadSteps = (run: number, steps: ExactSteps) => Promise<readonly ILine[]>;

interface IWanted {
  readonly line: ILine;
  readonly steps: ExactSteps;
}

/** Answers that are kept: those of a few positions of many lines. */
const MOST_KEPT = 4096;

/**
 * The points of thinned lines between those that are drawn. Each position is asked for once, and only the
 * newest is waited for.
 */
export class ExactValues {
  /** @param _came - Called when something that was asked for is here. */
  constructor(
    private readonly _read: ReadSteps,
    private readonly _came: () => void
  ) {}

  /**
   * The points of a line about a position: `null` while they are asked for, `undefined` where they cannot be
   * had. `at` is the index of the last drawn point before it.
   */
  about(line: ILine, at: number, x: number): ILine | null | undefined {
    const first = line.step[at] ?? NaN;
    const steps: ExactSteps = [first, line.step[at + 1] ?? first];
    const key = `${idOf(line)} ${steps.join()}`;
    if (this._known.has(key)) {
      return this._known.get(key);
    }
    if (x !== this._x) {
      this._x = x;
      this._wanted.clear();
    }
    this._wanted.set(key, { line, steps });
    this._asking ??= this._ask();
    return null;
  }

  /** Resolves when nothing is asked for any more. */
  get settled(): Promise<void> {
    return this._asking ?? Promise.resolve();
  }

  private async _ask(): Promise<void> {
    // What is wanted at one moment is one question.
    await Promise.resolve();
    while (this._wanted.size > 0) {
      const wanted = [...this._wanted];
      this._wanted.clear();
      const runs = [...new Set(wanted.map(([, { line }]) => line.run))];
      await Promise.all(
        runs.map(run =>
          this._of(
            run,
            wanted.filter(([, { line }]) => line.run === run)
          )
        )
      );
      this._came();
    }
    this._asking = null;
  }

  private async _of(run: number, wanted: readonly [string, IWanted][]): Promise<void> {
    const all = wanted.flatMap(([, { steps }]) => steps);
    const found = await this._read(run, [Math.min(...all), Math.max(...all)]).catch(() => []);
    const byId = new Map(found.map(line => [idOf(line), line]));
    wanted.forEach(([key, { line }]) => this._known.set(key, byId.get(idOf(line))));
    for (const old of this._known.keys()) {
      if (this._known.size <= MOST_KEPT) {
        break;
      }
      this._known.delete(old);
    }
  }

  private readonly _known = new Map<string, ILine | undefined>();
  private readonly _wanted = new Map<string, IWanted>();
  private _x = NaN;
  private _asking: Promise<void> | null = null;
}

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

  /**
   * The lines of the whole, with the stretch that is here in full detail: the same object until something is
   * taken in.
   */
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
  const before = indexBefore(whole.step, first - 0.5) + 1;
  const after = indexBefore(whole.step, last) + 1;
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
