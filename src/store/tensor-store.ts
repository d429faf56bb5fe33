import type { Pass, Phase } from '../protocol/messages.generated';
import { momentsOf } from './row-moments';
import type { ITensorQuery, ITensorResult, ITensorRow, ITensorShape, StepsQuery } from './tensor-data';
import { compareRows } from './tensor-data';
import { TensorSeries } from './tensor-series';

/** The steps that have rows, ascending, each with its number of rows. */
class StepIndex {
  /** The steps. The same array until something changes; readers may keep it. */
  get steps(): readonly number[] {
    this.sorted ??= [...this.counts.keys()].sort((a, b) => a - b);
    return this.sorted;
  }

  add(step: number): void {
    const count = this.counts.get(step) ?? 0;
    this.counts.set(step, count + 1);
    if (count === 0) {
      this.sorted = null;
    }
  }

  remove(step: number): void {
    const count = this.counts.get(step) ?? 0;
    if (count > 1) {
      this.counts.set(step, count - 1);
    } else if (this.counts.delete(step)) {
      this.sorted = null;
    }
  }

  private readonly counts = new Map<number, number>();
  private sorted: readonly number[] | null = null;
}

/** What a row in memory costs besides its values: the objects, measured in V8 and rounded up. */
export const TENSOR_ROW_BYTES = 600;
const LABEL_BYTES = 32;

/** Statistics may take this part of the bound before the oldest of them are thinned out. */
const REDUCED_SHARE = 0.25;
/** Sums of larger tensors are taken when they are needed: a frame must not wait for them. */
const SUMMED_VALUES = 1 << 16;

interface IFlag {
  readonly series: Map<string, TensorSeries>;
  readonly parts: Set<string>;
  readonly steps: Map<string, StepIndex>;
  thinned: boolean;
}

/**
 * The tensors of one run: a series for each (flag, part, phase, pass, rank, layer), all together bounded by
 * bytes.
 *
 * When memory runs out the older halves are thinned: first tensors become statistics, then the oldest
 * statistics go, in both cases all but the extremes of every few. The newest tensor of each series stays, so
 * that a flag which is rarely traced does not vanish. What went is counted.
 */
export class TensorStore {
  /** @param limitBytes - Bytes of values, labels and their objects together. */
  constructor(private readonly limitBytes: number) {}

  get bytes(): number {
    return this._bytes;
  }

  /** Newest step of which some tensor was given up. */
  get thinnedTo(): number {
    return this._thinnedTo;
  }

  get flags(): readonly string[] {
    return [...this.all.keys()];
  }

  /**
   * Keep a row. Its values are copied: a view would hold the whole frame in memory for as long as its
   * longest-lived row.
   */
  add(row: ITensorRow): void {
    const kept: ITensorRow = {
      ...row,
      flag: this.intern(row.flag),
      part: this.intern(row.part),
      compressor: this.intern(row.compressor),
      values: row.values.slice()
    };
    if (this._bytes > this.limitBytes / 2 && kept.values.length <= SUMMED_VALUES) {
      // Memory will run out: what thinning asks for is not all asked at once then.
      momentsOf(kept.values);
    }
    const flag = this.flag(kept.flag);
    const key = `${kept.layer} ${kept.rank} ${kept.pass} ${kept.phase} ${kept.part}`;
    let series = flag.series.get(key);
    if (series === undefined) {
      const { part, phase, pass, rank, layer } = kept;
      series = new TensorSeries({ part, phase, pass, rank, layer });
      flag.series.set(key, series);
      flag.parts.add(part);
    }
    const replaced = series.insert(kept);
    this._bytes += sizeOf(kept);
    if (replaced !== null) {
      this._bytes -= sizeOf(replaced);
    } else {
      this.index(flag, kept.phase, kept.pass).add(kept.step);
    }
    this.shrink();
  }

  steps(flag: string, phase?: Phase, of: StepsQuery = {}): readonly number[] {
    const entry = this.all.get(flag);
    if (entry === undefined) {
      return [];
    }
    const { layers } = of;
    const some =
      layers !== undefined && [...entry.series.values()].some(({ key }) => !layers.includes(key.layer));
    if (some || (entry.thinned && (layers !== undefined || of.rank !== undefined))) {
      // Layers have steps of their own: where they are thinned, and where another one was traced before.
      const chosen = this.chosen({ ...of, flag, ...(phase ? { phase } : {}) });
      return distinct(chosen.map(series => series.between(-Infinity, Infinity).map(row => row.step)));
    }
    const lists = [...entry.steps]
      .filter(
        ([key]) =>
          (phase === undefined || key.startsWith(`${phase} `)) &&
          (of.pass === undefined || key.endsWith(` ${of.pass}`))
      )
      .map(([, index]) => index.steps);
    return lists.length === 1 ? (lists[0] ?? []) : distinct(lists);
  }

  shapeOf(flag: string): ITensorShape {
    const entry = this.all.get(flag);
    const keys = [...(entry?.series.values() ?? [])].map(series => series.key);
    return {
      parts: [...(entry?.parts ?? [])],
      layers: distinct([keys.map(key => key.layer)]),
      ranks: distinct([keys.map(key => key.rank)]),
      passes: [...new Set(keys.map(key => key.pass))]
    };
  }

  query(query: ITensorQuery): ITensorResult {
    const [first, last] = query.steps ?? [-Infinity, Infinity];
    const rows: ITensorRow[] = [];
    let [evictedRows, reducedRows, thinnedTo, lackingTo] = [0, 0, -Infinity, -Infinity];
    for (const series of this.chosen(query)) {
      if (query.measured) {
        const row = series.measured(last);
        rows.push(...(row ? [row] : []));
        continue;
      }
      for (const row of series.between(first, last)) {
        rows.push(row);
      }
      const reduced = series.reducedBetween(first, last);
      reducedRows += reduced.length;
      thinnedTo = Math.max(thinnedTo, series.thinnedTo);
      lackingTo = Math.max(lackingTo, series.goneTo);
      if (query.reduced) {
        for (const row of reduced) {
          rows.push(row);
        }
      }
      evictedRows += query.steps === undefined ? series.evicted.total : series.evicted.count(first, last);
    }
    const retained = {
      // Of all steps the first is infinite as well, and so is what was never thinned.
      thinnedTo: Number.isFinite(thinnedTo) && thinnedTo >= first ? thinnedTo : null,
      reducedRows,
      bytes: this._bytes,
      limitBytes: this.limitBytes
    };
    const lacking = Number.isFinite(lackingTo) && lackingTo >= first ? { lackingTo } : {};
    return { rows: rows.sort(compareRows), evictedRows, sampledEvery: 1, kept: retained, ...lacking };
  }

  clear(): void {
    this.all.clear();
    this.words.clear();
    this._bytes = 0;
    this.reducedBytes = 0;
    this._thinnedTo = -Infinity;
  }

  /** The series that a query names, of each layer's ranks the lowest where that is asked for. */
  private chosen(query: ITensorQuery): TensorSeries[] {
    const { part, phase, pass, layers, rank } = query;
    const found = [...(this.all.get(query.flag)?.series.values() ?? [])].filter(
      ({ key }) =>
        (part === undefined || part === key.part) &&
        (phase === undefined || phase === key.phase) &&
        (pass === undefined || pass === key.pass) &&
        (layers === undefined || layers.includes(key.layer)) &&
        (rank === undefined || rank === 'lowest' || rank === key.rank)
    );
    if (rank !== 'lowest') {
      return found;
    }
    const lowest = new Map<number, number>();
    for (const { key } of found) {
      lowest.set(key.layer, Math.min(lowest.get(key.layer) ?? Infinity, key.rank));
    }
    return found.filter(({ key }) => lowest.get(key.layer) === key.rank);
  }

  private shrink(): void {
    while (this._bytes > this.limitBytes) {
      const before = this._bytes;
      // Series by series, so that no frame waits for a pass over all of them.
      const all = [...this.all.values()].flatMap(flag =>
        [...flag.series.values()].map(series => ({ flag, series }))
      );
      for (let tries = all.length; tries > 0 && this._bytes > this.limitBytes; tries -= 1) {
        this.turn = (this.turn + 1) % all.length;
        const next = all[this.turn];
        if (next) {
          this.forget(next.flag, next.series.thin());
        }
      }
      if (this.reducedBytes > this.limitBytes * REDUCED_SHARE) {
        this.thinReduced(8);
      }
      if (this._bytes === before && !this.thinOldest()) {
        return;
      }
    }
  }

  /** Thin the statistics of every series that has so many. */
  private thinReduced(least: number): boolean {
    const before = this._bytes;
    for (const flag of this.all.values()) {
      for (const series of flag.series.values()) {
        if (series.reducedLength >= least) {
          this.drop(series.thinReduced());
        }
      }
    }
    return this._bytes < before;
  }

  /** Where every series is short: reduce the oldest tensors, or else drop the oldest statistics. */
  private thinOldest(): boolean {
    const before = this._bytes;
    for (const flag of this.all.values()) {
      for (const series of flag.series.values()) {
        this.forget(flag, series.thinOne());
      }
    }
    return this._bytes < before || this.thinReduced(1);
  }

  private forget(flag: IFlag, lost: readonly ITensorRow[]): void {
    for (const row of lost) {
      this._bytes -= sizeOf(row) - TENSOR_ROW_BYTES;
      this.reducedBytes += TENSOR_ROW_BYTES;
      this.index(flag, row.phase, row.pass).remove(row.step);
      this._thinnedTo = Math.max(this._thinnedTo, row.step);
      flag.thinned = true;
    }
  }

  private drop(rows: number): void {
    this._bytes -= rows * TENSOR_ROW_BYTES;
    this.reducedBytes -= rows * TENSOR_ROW_BYTES;
  }

  private flag(name: string): IFlag {
    let flag = this.all.get(name);
    if (flag === undefined) {
      flag = { series: new Map(), parts: new Set(), steps: new Map(), thinned: false };
      this.all.set(name, flag);
    }
    return flag;
  }

  private index(flag: IFlag, phase: Phase, pass: Pass): StepIndex {
    const key = `${phase} ${pass}`;
    let index = flag.steps.get(key);
    if (index === undefined) {
      index = new StepIndex();
      flag.steps.set(key, index);
    }
    return index;
  }

  // Every row brings its own copy of the same few words.
  private intern(word: string): string {
    const known = this.words.get(word);
    if (known !== undefined) {
      return known;
    }
    if (this.words.size < 4096) {
      this.words.set(word, word);
    }
    return word;
  }

  private readonly all = new Map<string, IFlag>();
  private readonly words = new Map<string, string>();
  private _bytes = 0;
  private _thinnedTo = -Infinity;
  /** Series that was thinned last. */
  private turn = 0;
  private reducedBytes = 0;
}

function distinct(lists: readonly (readonly number[])[]): number[] {
  return [...new Set(lists.flat())].sort((a, b) => a - b);
}

function sizeOf(row: ITensorRow): number {
  return TENSOR_ROW_BYTES + row.values.byteLength + row.labels.length * LABEL_BYTES;
}
