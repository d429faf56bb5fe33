import { byName, firstIndex } from '../protocol/records';
import { giveBack } from '../protocol/frame';
import { FLOAT, numbersOf, WHOLE, type MomentNumber } from './row-moments';
import type { IMomentRows, MomentStat } from './moment-source';

type Numbers = Float64Array | Int32Array;

/** Bytes that one row takes. */
export const MOMENT_ROW_BYTES = WHOLE.length * 4 + FLOAT.length * 8;

/** The rows of one stat in typed arrays that grow, ordered by step. */
export class MomentColumns {
  constructor(readonly stat: MomentStat) {}

  get length(): number {
    return this._length;
  }

  column(name: (typeof FLOAT)[number]): Float64Array {
    return this.floats[name].subarray(0, this._length);
  }

  /** Places in the names. Valid until the next change. */
  get nameId(): Int32Array {
    return this.whole.nameId.subarray(0, this._length);
  }

  get rank(): Int32Array {
    return this.whole.rank.subarray(0, this._length);
  }

  /** Put a row in behind those that are there; `sort` brings it to its step. */
  push(row: (name: MomentNumber) => number): void {
    if (this._length === this.whole.nameId.length) {
      // A little at a time: there may be a hundred megabytes, of which half would lie idle.
      this.resize(Math.max(1024, Math.ceil(this._length * 1.125)));
    }
    const at = this._length;
    for (const name of WHOLE) {
      this.whole[name][at] = row(name);
    }
    for (const name of FLOAT) {
      this.floats[name][at] = row(name);
    }
    this._length += 1;
  }

  /** Restore the order by step after rows from `from` on were added; rows of one step keep their order. */
  sort(from: number): void {
    const steps = this.column('step');
    const least = steps.subarray(from).reduce((low, step) => Math.min(low, step), Infinity);
    // What is before the rows that came is in order, so that only what they fall into moves.
    const start = lowerBound(steps.subarray(0, from), least, true);
    const tail = steps.slice(start);
    if (isSorted(tail)) {
      return;
    }
    const order = Uint32Array.from(tail, (_, row) => row);
    order.sort((a, b) => (tail[a] ?? 0) - (tail[b] ?? 0) || a - b);
    for (const name of WHOLE) {
      const old = this.whole[name].slice(start, this._length);
      this.whole[name].set(taken(old, new Int32Array(old.length), order), start);
    }
    for (const name of FLOAT) {
      const old = this.floats[name].slice(start, this._length);
      this.floats[name].set(taken(old, new Float64Array(old.length), order), start);
    }
  }

  /** Keep only the rows at these places, in this order, and give memory back. */
  take(order: Uint32Array): void {
    const capacity = Math.max(1024, order.length);
    for (const name of WHOLE) {
      this.whole[name] = moved(this.whole[name], new Int32Array(capacity), order);
    }
    for (const name of FLOAT) {
      this.floats[name] = moved(this.floats[name], new Float64Array(capacity), order);
    }
    this._length = order.length;
  }

  /** Copies of the rows of these steps; whoever asked may keep or hand on their memory. */
  rows(names: readonly string[], [first, last]: readonly [number, number]): IMomentRows {
    const steps = this.column('step');
    const [from, to] = [lowerBound(steps, first), lowerBound(steps, last, true)];
    return {
      stat: new Array<MomentStat>(to - from).fill(this.stat),
      names,
      ...numbersOf(
        name => this.whole[name].slice(from, to),
        name => this.floats[name].slice(from, to)
      )
    };
  }

  private resize(capacity: number): void {
    for (const name of WHOLE) {
      this.whole[name] = grown(this.whole[name], new Int32Array(capacity));
    }
    for (const name of FLOAT) {
      this.floats[name] = grown(this.floats[name], new Float64Array(capacity));
    }
  }

  private readonly whole = byName(WHOLE, () => new Int32Array(0));
  private readonly floats = byName(FLOAT, () => new Float64Array(0));
  private _length = 0;
}

/** First place whose entry is not before `value`, or with `past` the first whose entry is beyond it. */
export function lowerBound(sorted: ArrayLike<number>, value: number, past = false): number {
  return firstIndex(sorted.length, at => {
    const entry = sorted[at] ?? 0;
    return !(entry < value || (past && entry === value));
  });
}

/** Rows of several stats as one set, ordered by step; rows of one step in the order of the sets. */
export function joinRows(parts: readonly IMomentRows[]): IMomentRows {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) {
    return only;
  }
  const stat = parts.flatMap(part => part.stat);
  const step = Float64Array.from(parts.flatMap(part => Array.from(part.step)));
  const order = Uint32Array.from(step, (_, row) => row).sort(
    (a, b) => (step[a] ?? 0) - (step[b] ?? 0) || a - b
  );
  const gather = <T extends Numbers>(of: (part: IMomentRows) => T, room: T): T => {
    const all = parts.flatMap(part => Array.from(of(part)));
    order.forEach((from, to) => {
      room[to] = all[from] ?? 0;
    });
    return room;
  };
  const whole = (name: (typeof WHOLE)[number]): Int32Array =>
    gather(part => part[name], new Int32Array(order.length));
  const float = (name: (typeof FLOAT)[number]): Float64Array =>
    gather(part => part[name], new Float64Array(order.length));
  return {
    stat: Array.from(order, row => stat[row] ?? 'param'),
    names: only?.names ?? [],
    ...numbersOf(whole, float)
  };
}

function grown<T extends Numbers>(old: T, room: T): T {
  room.set(old);
  giveBack(old.buffer);
  return room;
}

function taken<T extends Numbers>(old: T, room: T, order: Uint32Array): T {
  order.forEach((from, to) => {
    room[to] = old[from] ?? 0;
  });
  return room;
}

/** As `taken`, of what is not needed any more. */
function moved<T extends Numbers>(old: T, room: T, order: Uint32Array): T {
  taken(old, room, order);
  giveBack(old.buffer);
  return room;
}

function isSorted(steps: Float64Array): boolean {
  return steps.every((step, at) => at === 0 || step >= (steps[at - 1] ?? 0));
}
