import type { StreamTable } from '../protocol/frame-table';
import { extremesOf } from './tensor-series';
import { Growable } from './row-store';
import type { IScalarColumns } from './source';

const BYTES_PER_ROW = 24;
const BYTES_PER_NAME = 1024;
// Of this many neighbours the smallest and the largest stay when memory runs out.
const THIN_GROUP = 4;

interface ISeries {
  readonly step: Growable;
  readonly time: Growable;
  readonly value: Growable;
  unit: string;
  /** Newest time by rank: tells rows that come a second time. */
  readonly newest: Map<number, number>;
}

/** The scalars of one run by name, ordered by step, bounded by bytes. */
export class ScalarStore {
  /**
   * @param limitBytes - Beyond this, the longest series' older half is thinned to its local extremes.
   */
  constructor(private readonly limitBytes: number) {}

  get thinned(): number {
    return this._thinned;
  }

  get bytes(): number {
    return this._bytes;
  }

  /**
   * Add the rows of a frame.
   * @param table - Rows of the `scalars` stream.
   * @param again - Whether rows may come that are here already; those are left out.
   * @returns First and last step, or null when nothing was new.
   */
  append(table: StreamTable, mayRepeat: boolean): [number, number] | null {
    const [steps, times, ranks, names, values, units] = table.children;
    let first = Infinity;
    let last = -Infinity;
    for (let row = 0; row < table.numRows; row += 1) {
      const series = this.series(String(names?.at(row)), String(units?.at(row)));
      const [step, time, rank] = [Number(steps?.at(row)), Number(times?.at(row)), Number(ranks?.at(row))];
      if (mayRepeat && time <= (series.newest.get(rank) ?? -Infinity)) {
        continue;
      }
      series.newest.set(rank, time);
      let at = series.step.length;
      while (at > 0 && series.step.at(at - 1) > step) {
        at -= 1;
      }
      series.step.insert(at, step);
      series.time.insert(at, time);
      series.value.insert(at, Number(values?.at(row)));
      this._bytes += BYTES_PER_ROW;
      first = Math.min(first, step);
      last = Math.max(last, step);
    }
    if (first > last) {
      return null;
    }
    while (this._bytes > this.limitBytes && this.thin()) {
      // Until it fits, or nothing more can go.
    }
    this.answers.clear();
    return [first, last];
  }

  /** Scalars as columns, in the order of `names`; all when absent. The same object while unchanged. */
  columns(names?: readonly string[] | null): IScalarColumns {
    const key = JSON.stringify(names ?? null);
    const known = this.answers.get(key);
    if (known !== undefined) {
      return known;
    }
    const wanted = (names ?? [...this.all.keys()]).flatMap(name => {
      const series = this.all.get(name);
      return series === undefined ? [] : [{ name, series }];
    });
    const length = wanted.reduce((sum, { series }) => sum + series.step.length, 0);
    const columns = {
      step: new Float64Array(length),
      time: new Float64Array(length),
      value: new Float64Array(length),
      name: new Array<string>(length),
      units: Object.fromEntries(wanted.map(({ name, series }) => [name, series.unit])),
      thinned: this._thinned
    };
    let at = 0;
    for (const { name, series } of wanted) {
      columns.step.set(series.step.view, at);
      columns.time.set(series.time.view, at);
      columns.value.set(series.value.view, at);
      columns.name.fill(name, at, at + series.step.length);
      at += series.step.length;
    }
    if (this.answers.size >= 8) {
      this.answers.clear();
    }
    this.answers.set(key, columns);
    return columns;
  }

  clear(): void {
    this.all.clear();
    this.answers.clear();
    this._bytes = 0;
    this._thinned = 0;
  }

  private series(name: string, unit: string): ISeries {
    let series = this.all.get(name);
    if (series === undefined) {
      series = { step: new Growable(), time: new Growable(), value: new Growable(), unit, newest: new Map() };
      this.all.set(name, series);
      this._bytes += BYTES_PER_NAME;
    }
    series.unit = unit || series.unit;
    return series;
  }

  private thin(): boolean {
    const [longest] = [...this.all.values()].sort((a, b) => b.step.length - a.step.length);
    const length = longest?.step.length ?? 0;
    if (longest === undefined || length < THIN_GROUP * 8) {
      return false;
    }
    const retained: number[] = [];
    const half = Math.floor(length / 2 / THIN_GROUP) * THIN_GROUP;
    for (let start = 0; start < half; start += THIN_GROUP) {
      const group = longest.value.view.subarray(start, start + THIN_GROUP);
      retained.push(...extremesOf(group).map(at => start + at));
    }
    for (let index = half; index < length; index += 1) {
      retained.push(index);
    }
    [longest.step, longest.time, longest.value].forEach(column => column.keep(retained));
    this._thinned += length - retained.length;
    this._bytes -= (length - retained.length) * BYTES_PER_ROW;
    return retained.length < length;
  }

  private readonly all = new Map<string, ISeries>();
  private readonly answers = new Map<string, IScalarColumns>();
  private _bytes = 0;
  private _thinned = 0;
}
