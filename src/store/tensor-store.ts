import type { ITensorQuery, ITensorResult, ITensorRow } from './source';
import { StepIndex } from './step-index';
import { compareRows } from './tensor-rows';
import { TensorSeries } from './tensor-series';

// What a row costs besides its values: the objects, measured in V8 and rounded up.
const ROW_BYTES = 600;
const LABEL_BYTES = 32;

interface IFlag {
  readonly series: Map<string, TensorSeries>;
  readonly parts: Set<string>;
  readonly layers: Set<number>;
  readonly steps: Map<string, StepIndex>;
}

/**
 * The tensors of one run: a series for each (flag, part, phase, layer), all together bounded by bytes.
 *
 * When memory runs out the row that came first goes, but the newest row of each series stays, so that a flag which is
 * rarely traced does not vanish. What went is counted.
 */
export class TensorStore {
  /**
   * @param limitBytes - Bytes of values, labels and their objects together.
   */
  constructor(private readonly limitBytes: number) {}

  get bytes(): number {
    return this._bytes;
  }

  /** Flags seen so far. */
  get flags(): readonly string[] {
    return [...this.all.keys()];
  }

  /**
   * Keep a row. Its values are copied: a view would hold the whole frame in memory for as long as its longest-lived row.
   */
  add(row: ITensorRow): void {
    const kept: ITensorRow = {
      ...row,
      phase: row.phase,
      flag: this.intern(row.flag),
      part: this.intern(row.part),
      compressor: this.intern(row.compressor),
      values: row.values.slice()
    };
    const flag = this.flag(kept.flag);
    const key = `${kept.layer} ${kept.phase} ${kept.part}`;
    let series = flag.series.get(key);
    if (series === undefined) {
      series = new TensorSeries(kept.part, kept.phase, kept.layer);
      flag.series.set(key, series);
      flag.parts.add(kept.part);
      flag.layers.add(kept.layer);
    }
    const replaced = series.insert(kept);
    this._bytes += sizeOf(kept);
    if (replaced !== null) {
      this._bytes -= sizeOf(replaced);
    } else {
      this.index(flag, kept.phase).add(kept.step);
      this.arrivals.push({ flag, series });
    }
    this.evict();
  }

  /** Steps for which a flag has rows, ascending. */
  steps(flag: string, phase?: string): readonly number[] {
    const indices = this.all.get(flag)?.steps;
    if (indices === undefined) {
      return [];
    }
    if (phase !== undefined) {
      return indices.get(phase)?.steps ?? [];
    }
    const lists = [...indices.values()].map(index => index.steps);
    const [only] = lists;
    return lists.length === 1 && only !== undefined ? only : [...new Set(lists.flat())].sort((a, b) => a - b);
  }

  /** Parts and layers of a flag seen so far. */
  shapeOf(flag: string): { parts: readonly string[]; layers: readonly number[] } {
    const entry = this.all.get(flag);
    return {
      parts: [...(entry?.parts ?? [])],
      layers: [...(entry?.layers ?? [])].sort((a, b) => a - b)
    };
  }

  query(query: ITensorQuery): ITensorResult {
    const [first, last] = query.steps ?? [-Infinity, Infinity];
    const rows: ITensorRow[] = [];
    let evictedRows = 0;
    for (const series of this.all.get(query.flag)?.series.values() ?? []) {
      const wanted =
        (query.part === undefined || query.part === series.part) &&
        (query.phase === undefined || query.phase === series.phase) &&
        (query.layers === undefined || query.layers.includes(series.layer));
      if (wanted) {
        for (const row of series.between(first, last)) {
          rows.push(row);
        }
        evictedRows += query.steps === undefined ? series.evicted.total : series.evicted.count(first, last);
      }
    }
    return { rows: rows.sort(compareRows), evictedRows, sampledEvery: 1 };
  }

  clear(): void {
    this.all.clear();
    this.words.clear();
    this.arrivals = [];
    this.gone = 0;
    this._bytes = 0;
  }

  private evict(): void {
    for (
      let tries = this.arrivals.length - this.gone;
      this._bytes > this.limitBytes && tries > 0;
      tries -= 1
    ) {
      const arrival = this.arrivals[this.gone];
      if (arrival === undefined) {
        return;
      }
      this.gone += 1;
      if (arrival.series.length <= 1) {
        this.arrivals.push(arrival);
        continue;
      }
      const row = arrival.series.evict();
      if (row !== null) {
        this._bytes -= sizeOf(row);
        this.index(arrival.flag, row.phase).remove(row.step);
      }
    }
    if (this.gone > 1024 && this.gone * 2 > this.arrivals.length) {
      this.arrivals = this.arrivals.slice(this.gone);
      this.gone = 0;
    }
  }

  private flag(name: string): IFlag {
    let flag = this.all.get(name);
    if (flag === undefined) {
      flag = { series: new Map(), parts: new Set(), layers: new Set(), steps: new Map() };
      this.all.set(name, flag);
    }
    return flag;
  }

  private index(flag: IFlag, phase: string): StepIndex {
    let index = flag.steps.get(phase);
    if (index === undefined) {
      index = new StepIndex();
      flag.steps.set(phase, index);
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
  private arrivals: { flag: IFlag; series: TensorSeries }[] = [];
  private gone = 0;
  private _bytes = 0;
}

function sizeOf(row: ITensorRow): number {
  return ROW_BYTES + row.values.byteLength + row.labels.length * LABEL_BYTES;
}
