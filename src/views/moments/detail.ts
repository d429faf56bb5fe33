import { byName } from '../../protocol/by-name';
import { placeBefore } from '../shared/places';
import { LINE_COLUMNS, type IMomentLine } from './line';

type Steps = readonly [number, number];

/** Lines of one stretch of steps in more detail than the whole is drawn with. */
export class Detail {
  /**
   * Whether what is here suffices to draw some steps.
   *
   * @param key - What is asked, apart from the steps.
   */
  covers(key: string, [first, last]: Steps): boolean {
    const [from, to] = this._steps;
    return key === this._key && from <= first && to >= last && to - from <= 8 * (last - first + 1);
  }

  /** Take lines of a stretch in. */
  take(key: string, steps: Steps, lines: readonly IMomentLine[]): void {
    this._key = key;
    this._steps = steps;
    this._lines = new Map(lines.map(line => [idOf(line), line]));
    this._refined = null;
  }

  /** The lines of the whole with the stretch that is here in full detail: the same object until something is taken in. */
  refine(key: string, whole: readonly IMomentLine[]): readonly IMomentLine[] {
    if (key !== this._key) {
      return whole;
    }
    if (this._refined?.whole !== whole) {
      const lines = whole.map(line => merged(line, this._lines.get(idOf(line))));
      this._refined = { whole, lines };
    }
    return this._refined.lines;
  }

  private _refined: { whole: readonly IMomentLine[]; lines: readonly IMomentLine[] } | null = null;
  private _key = '';
  private _steps: Steps = [0, -1];
  private _lines: ReadonlyMap<string, IMomentLine> = new Map();
}

const idOf = (line: IMomentLine): string => `${line.run} ${JSON.stringify(line.key)}`;

function merged(whole: IMomentLine, part: IMomentLine | undefined): IMomentLine {
  const [first, last] = [part?.step[0], part?.step[(part.step.length || 1) - 1]];
  if (part === undefined || first === undefined || last === undefined) {
    return whole;
  }
  const before = placeBefore(whole.step, first - 0.5) + 1;
  const after = placeBefore(whole.step, last) + 1;
  const join = (a: Float64Array, b: Float64Array): Float64Array => {
    const all = new Float64Array(before + b.length + a.length - after);
    all.set(a.subarray(0, before));
    all.set(b, before);
    all.set(a.subarray(after), before + b.length);
    return all;
  };
  return { ...whole, ...byName(LINE_COLUMNS, name => join(whole[name], part[name])) };
}
