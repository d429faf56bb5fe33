import { byName } from '../protocol/records';
import { parseName, type ITensorName } from '../protocol/tensor-name';
import type { IMomentRows, MomentStat } from '../store/row-moments';
import { lowerBound, PRE_STEP, CLIPPED, SCALED } from '../store/row-moments';
import { MERGED } from './moment-merge';

type Numbers = Float64Array | Int32Array | Uint8Array;

export type IRowPart = Omit<IMomentRows, 'stat'>;

/**
 * The rows of one stat of one run, as columns that are grouped again and again. Rows are ordered by step;
 * what depends on the step alone or on the name alone is kept once.
 */
export class MomentTable {
  constructor(readonly stat: MomentStat) {}

  /** Distinct steps, ascending; a row's `stepCode` is an index into them. */
  readonly steps: number[] = [];
  /** Samples consumed at each of them; -1 where nobody said. */
  readonly samples: number[] = [];
  readonly names: string[] = [];
  /** 1 for names that have rows here: other stats' names are in `names` too. */
  present = new Uint8Array(0);
  /** Number of them: what is made of the names alone is as good as long as it stays. */
  named = 0;
  /**
   * Whether any row has rounding, non-finite values, values near zero, an unknown loss scale or clipping:
   * passes over what is 0 everywhere are left out.
   */
  readonly any = { rounding: false, nonFinite: false, nearZero: false, scaled: false };

  nameId = new Int32Array(0);
  stepCode = new Int32Array(0);
  rank = new Int32Array(0);
  stage = new Int32Array(0);
  /** `SCALED` and `CLIPPED`, added up. */
  scaled = new Uint8Array(0);
  readonly columns = byName(MERGED, () => new Float64Array(0));

  /** What a name says, read once. */
  parsed(nameId: number): ITensorName {
    return (this._parsed[nameId] ??= parseName(this.names[nameId] ?? ''));
  }

  /** First row of the first step that is not before `step`. */
  rowFrom(step: number): number {
    const code = lowerBound(this.steps, step);
    return lowerBound(this.stepCode.subarray(0, this.length), code);
  }

  /** Give up the rows of `step` and of every later one. */
  cut(step: number): void {
    this.length = this.rowFrom(step);
    const code = lowerBound(this.steps, step);
    this.steps.length = code;
    this.samples.length = code;
  }

  /** Add rows of this stat, none of which is before those that are here. */
  append(rows: IRowPart): void {
    const from = this.length;
    const added = rows.step.length;
    this.grow(from + added);
    this.length = from + added;
    // Whoever sends rows numbers their names as it likes.
    const ids = Int32Array.from(rows.names, name => this.idOf(name));
    if (this.present.length < this.names.length) {
      const present = new Uint8Array(this.names.length);
      present.set(this.present);
      this.present = present;
    }
    this.rank.set(rows.rank, from);
    this.stage.set(rows.stage, from);
    const { columns } = this;
    for (const name of ['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max', 'rounding'] as const) {
      columns[name].set(rows[name], from);
    }
    for (let row = 0; row < added; row += 1) {
      // Every index is in range: the columns were grown to these rows.
      const bad = (rows.nanCount[row] as number) + (rows.infCount[row] as number);
      columns.nonFinite[from + row] = bad;
      this.any.nonFinite ||= bad !== 0;
      const near = rows.nearZeroCount[row] as number;
      columns.nearZero[from + row] = near;
      this.any.nearZero ||= near !== 0;
      this.any.rounding ||= (rows.rounding[row] as number) > 0;
      const scale = rows.lossScale[row] as number;
      const doubt = (Number.isNaN(scale) ? SCALED : 0) | (rows.gradientStage[row] === PRE_STEP ? CLIPPED : 0);
      this.scaled[from + row] = doubt;
      this.any.scaled ||= doubt !== 0;
      const id = ids[rows.nameId[row] as number] as number;
      this.nameId[from + row] = id;
      if (this.present[id] !== 1) {
        this.present[id] = 1;
        this.named += 1;
      }
      this.stepCode[from + row] = this.codeOf(rows.step[row] as number, rows.samples[row] as number);
    }
  }

  private idOf(name: string): number {
    const known = this.ids.get(name) ?? this.names.length;
    if (known === this.names.length) {
      this.names.push(name);
      this.ids.set(name, known);
    }
    return known;
  }

  private codeOf(step: number, samples: number): number {
    let code = this.steps.length - 1;
    if (code < 0 || this.steps[code] !== step) {
      code += 1;
      this.steps.push(step);
      this.samples.push(-1);
    }
    if (samples > (this.samples[code] ?? -1)) {
      this.samples[code] = samples;
    }
    return code;
  }

  private grow(length: number): void {
    if (length <= this.nameId.length) {
      return;
    }
    // Exactly what is needed at first, for most tables never grow; then by an eighth.
    const capacity = this.length === 0 ? length : Math.max(length, Math.ceil(this.nameId.length * 1.125));
    this.nameId = grown(this.nameId, new Int32Array(capacity));
    this.stepCode = grown(this.stepCode, new Int32Array(capacity));
    this.rank = grown(this.rank, new Int32Array(capacity));
    this.stage = grown(this.stage, new Int32Array(capacity));
    this.scaled = grown(this.scaled, new Uint8Array(capacity));
    for (const name of MERGED) {
      this.columns[name] = grown(this.columns[name], new Float64Array(capacity));
    }
  }

  private readonly ids = new Map<string, number>();
  private readonly _parsed: ITensorName[] = [];
  length = 0;
}

function grown<T extends Numbers>(old: T, larger: T): T {
  larger.set(old);
  return larger;
}
