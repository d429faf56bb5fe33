import { idOf, type ILine } from './line';

type Steps = readonly [number, number];

/** Reads every point that a run's lines have in some steps. */
export type ReadSteps = (run: number, steps: Steps) => Promise<readonly ILine[]>;

interface IWanted {
  readonly line: ILine;
  readonly steps: Steps;
}

/** Answers that are kept: those of a few places of many lines. */
const MOST_KEPT = 4096;

/** What lines that are drawn with some of their points are between these. Each place is asked for once, and only the newest is waited for. */
export class ExactValues {
  /** @param _came - Called when something that was asked for is here. */
  constructor(
    private readonly _read: ReadSteps,
    private readonly _came: () => void
  ) {}

  /**
   * Return the points of a line about a place: `null` while they are asked for, `undefined` where they cannot be had.
   *
   * @param at - Place of the last drawn point before it.
   */
  about(line: ILine, at: number, x: number): ILine | null | undefined {
    const first = line.step[at] ?? NaN;
    const steps: Steps = [first, line.step[at + 1] ?? first];
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
