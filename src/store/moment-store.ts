import type { MomentRowsRequest } from '../protocol/requests.generated';
import type { StreamTable } from '../protocol/frame-table';
import { MOMENT_STATS } from '../protocol/moment-statistics';
import { pageBytes } from '../protocol/streams';
import { STREAMS } from '../protocol/streams';
import type { MomentNumber, IMomentIndex, IMomentRows, MomentStat } from './row-moments';
import { MomentColumns, joinRows, MOMENT_ROW_BYTES, gradientStage, streamName } from './row-moments';

// Of so many neighbouring steps those that stand out stay when memory runs out.
const STRETCH = 8;

/** The places of the rows of one step. */
interface IStepSpan {
  readonly from: number;
  readonly to: number;
}

/**
 * Choose the rows that stay when memory runs out.
 *
 * A step stays or goes as a whole, for a total over the tensors of a step must not lack some. Of the older
 * half of the steps, the very first stays; of each stretch of eight those of the greatest and of the least
 * sum of squares, the one at which a single tensor stands out most from its neighbours in time, and every one
 * with values that are not finite or not known. Where nothing goes that way, the oldest steps go.
 * @param columns - Rows of one stat, ordered by step.
 * @returns Indices of the rows that stay, ascending; how many steps went, and the newest of them.
 */
function thinSteps(columns: MomentColumns): { rows: Uint32Array; steps: number; newest: number } {
  const spans = spansOf(columns.column('step'));
  const half = spans.length >> 1;
  const stay = new Set<IStepSpan>([...spans.slice(0, 1), ...spans.slice(half)]);
  for (let start = 0; start < half; start += STRETCH) {
    outstanding(columns, spans.slice(start, Math.min(half, start + STRETCH))).forEach(span => stay.add(span));
  }
  if (stay.size === spans.length) {
    spans.slice(1, 1 + Math.max(1, half >> 2)).forEach(span => stay.delete(span));
  }
  const gone = spans.filter(span => !stay.has(span));
  const retained = spans.filter(span => stay.has(span));
  const rows = new Uint32Array(retained.reduce((sum, { from, to }) => sum + to - from, 0));
  let length = 0;
  for (const { from, to } of retained) {
    for (let row = from; row < to; row += 1) {
      rows[length] = row;
      length += 1;
    }
  }
  const newest = columns.column('step')[gone[gone.length - 1]?.from ?? -1] ?? -Infinity;
  return { rows, steps: gone.length, newest };
}

function outstanding(columns: MomentColumns, spans: readonly IStepSpan[]): IStepSpan[] {
  const [count, mean, m2] = [columns.column('count'), columns.column('mean'), columns.column('m2')];
  const [nans, infs] = [columns.column('nanCount'), columns.column('infCount')];
  const size = (row: number): number =>
    (count[row] ?? 0) > 0 ? Math.max(m2[row] ?? 0, 0) + (count[row] ?? 0) * (mean[row] ?? 0) ** 2 : 0;
  const ids = columns.nameId;
  const sums = new Map<number, number>();
  const totals = spans.map(({ from, to }) => {
    let total = 0;
    for (let row = from; row < to; row += 1) {
      total += size(row);
      sums.set(ids[row] ?? 0, (sums.get(ids[row] ?? 0) ?? 0) + size(row));
    }
    return total;
  });
  const jumps = spans.map(({ from, to }) => {
    let jump = 0;
    for (let row = from; row < to; row += 1) {
      jump = Math.max(jump, size(row) / (sums.get(ids[row] ?? 0) || 1));
    }
    return jump;
  });
  const bad = ({ from, to }: IStepSpan): boolean => {
    for (let row = from; row < to; row += 1) {
      if (nans[row] !== 0 || infs[row] !== 0 || !Number.isFinite(size(row))) {
        return true;
      }
    }
    return false;
  };
  const indices = [
    totals.indexOf(Math.max(...totals)),
    totals.indexOf(Math.min(...totals)),
    jumps.indexOf(Math.max(...jumps))
  ];
  return spans.filter((span, index) => indices.includes(index) || bad(span));
}

function spansOf(steps: Float64Array): IStepSpan[] {
  const spans: IStepSpan[] = [];
  let from = 0;
  for (let row = 1; row <= steps.length; row += 1) {
    if (row === steps.length || steps[row] !== steps[from]) {
      spans.push({ from, to: row });
      from = row;
    }
  }
  return spans;
}

/** Rows that are kept by default. */
export const MOMENT_ROWS = Math.floor(pageBytes(STREAMS.moments) / MOMENT_ROW_BYTES);

interface IStat {
  readonly columns: MomentColumns;
  /** Newest step of each name and rank: tells rows that come a second time. */
  readonly newest: Map<number, number>;
  /** Steps given up to stay within memory, and the newest of them. */
  thinned: number;
  thinnedTo: number;
}

/** The statistics of one live run, by stat and ordered by step, bounded by rows. */
export class MomentStore {
  /** @param limitRows - Beyond this, steps of the older half are given up; those that stand out stay. */
  constructor(private readonly limitRows = MOMENT_ROWS) {}

  get length(): number {
    return [...this.stats.values()].reduce((sum, { columns }) => sum + columns.length, 0);
  }

  get bytes(): number {
    return this.length * MOMENT_ROW_BYTES;
  }

  /** Steps given up to stay within memory, over all stats. What is not 0 is better asked of the recording. */
  get thinned(): number {
    return [...this.stats.values()].reduce((sum, { thinned }) => sum + thinned, 0);
  }

  /**
   * Add the rows of a frame.
   * @param table - Rows of the stream `moments`.
   * @param again - Whether rows may come that are here already; those are left out.
   * @returns First and last step, or null when nothing was new.
   */
  append(table: StreamTable, mayRepeat: boolean): [number, number] | null {
    const cell = reader(table);
    let [first, last] = [Infinity, -Infinity];
    const before = new Map<IStat, number>();
    for (let row = 0; row < table.numRows; row += 1) {
      const stat = this.stat(String(cell('stat', row)));
      if (stat === null) {
        continue;
      }
      const read = (name: MomentNumber): number =>
        name === 'gradientStage'
          ? gradientStage(String(cell('gradient_stage', row)))
          : Number(cell(streamName(name), row));
      const [nameId, rank, step] = [this.nameId(String(cell('name', row))), read('rank'), read('step')];
      const series = seriesOf(nameId, rank);
      if (mayRepeat && step <= (stat.newest.get(series) ?? -Infinity)) {
        continue;
      }
      stat.newest.set(series, Math.max(step, stat.newest.get(series) ?? -Infinity));
      before.set(stat, before.get(stat) ?? stat.columns.length);
      stat.columns.push(name => (name === 'nameId' ? nameId : read(name)));
      this.hasSamples ||= read('samples') >= 0;
      first = Math.min(first, step);
      last = Math.max(last, step);
    }
    if (first > last) {
      return null;
    }
    before.forEach((from, { columns }) => columns.sort(from));
    this.settle();
    return [first, last];
  }

  /**
   * Put in rows from before those that are here, such as a recording has: of each tensor and rank what is
   * older than its oldest row.
   * @returns Whether there were any.
   */
  prepend(rows: IMomentRows): boolean {
    const oldest = new Map([...this.stats.values()].map(stat => [stat, oldestOf(stat.columns)]));
    const before = new Map<IStat, number>();
    for (let row = 0; row < rows.step.length; row += 1) {
      const stat = this.stat(rows.stat[row] ?? '');
      if (stat === null) {
        continue;
      }
      const at = (column: ArrayLike<number>): number => column[row] ?? NaN;
      const nameId = this.nameId(rows.names[at(rows.nameId)] ?? '');
      const [step, rank] = [at(rows.step), at(rows.rank)];
      const series = seriesOf(nameId, rank);
      if (step >= (oldest.get(stat)?.get(series) ?? Infinity)) {
        continue;
      }
      before.set(stat, before.get(stat) ?? stat.columns.length);
      stat.newest.set(series, Math.max(step, stat.newest.get(series) ?? -Infinity));
      stat.columns.push(name => (name === 'nameId' ? nameId : at(rows[name])));
      this.hasSamples ||= at(rows.samples) >= 0;
    }
    before.forEach((from, { columns }) => columns.sort(from));
    this.settle();
    return before.size > 0;
  }

  /** What there is, as `IMomentSource.index` answers it. */
  index(): IMomentIndex {
    const version = String(this.version);
    if (this.known?.version === version) {
      return this.known;
    }
    const there = [...this.stats.values()].filter(({ columns }) => columns.length > 0);
    this.known = {
      version,
      stats: there.map(({ columns }) => {
        const steps = columns.column('step');
        return {
          stat: columns.stat,
          rows: columns.length,
          first: steps[0] ?? 0,
          last: steps[steps.length - 1] ?? 0,
          steps: distinctIn(steps)
        };
      }),
      names: this.names.slice(),
      samples: this.hasSamples,
      warnings: there.filter(({ thinned }) => thinned > 0).map(warning)
    };
    return this.known;
  }

  /**
   * The rows of these stats at these steps, as `IMomentSource.rows` answers them: copies, ordered by step
   * within a stat.
   */
  rows({ stats, steps }: MomentRowsRequest): IMomentRows {
    const span = steps ?? ([-Infinity, Infinity] as const);
    const names = this.names.slice();
    const parts = stats.map(stat =>
      (this.stats.get(stat)?.columns ?? new MomentColumns(stat)).rows(names, span)
    );
    return joinRows(parts);
  }

  clear(): void {
    this.stats.clear();
    this.names.length = 0;
    this.nameIds.clear();
    this.hasSamples = false;
    this.version += 1;
  }

  private stat(name: string): IStat | null {
    const known = MOMENT_STATS.find(stat => stat === name);
    if (known === undefined) {
      return null;
    }
    const there = this.stats.get(known) ?? {
      columns: new MomentColumns(known),
      newest: new Map<number, number>(),
      thinned: 0,
      thinnedTo: -1
    };
    this.stats.set(known, there);
    return there;
  }

  private nameId(name: string): number {
    const known = this.nameIds.get(name) ?? this.names.length;
    if (known === this.names.length) {
      this.names.push(name);
      this.nameIds.set(name, known);
    }
    return known;
  }

  private settle(): void {
    while (this.length > this.limitRows && this.thin()) {
      // Until it fits, or nothing more can go.
    }
    this.version += 1;
  }

  private thin(): boolean {
    const [largest] = [...this.stats.values()].sort((a, b) => b.columns.length - a.columns.length);
    const steps = largest?.columns.column('step');
    if (largest === undefined || steps === undefined || steps[0] === steps[steps.length - 1]) {
      return false;
    }
    const { rows, steps: gone, newest } = thinSteps(largest.columns);
    largest.thinned += gone;
    largest.thinnedTo = Math.max(largest.thinnedTo, newest);
    largest.columns.take(rows);
    return gone > 0;
  }

  private readonly stats = new Map<MomentStat, IStat>();
  private readonly names: string[] = [];
  private readonly nameIds = new Map<string, number>();
  private hasSamples = false;
  private version = 0;
  private known: IMomentIndex | null = null;
}

const seriesOf = (nameId: number, rank: number): number => nameId * 0x200000 + rank + 1;

/** The first step of each tensor and rank. */
function oldestOf(columns: MomentColumns): Map<number, number> {
  const oldest = new Map<number, number>();
  const { nameId, rank } = columns;
  columns.column('step').forEach((step, row) => {
    const series = seriesOf(nameId[row] ?? 0, rank[row] ?? -1);
    if (!oldest.has(series)) {
      oldest.set(series, step);
    }
  });
  return oldest;
}

function warning({ columns, thinned, thinnedTo }: IStat): string {
  return (
    `Up to step ${thinnedTo}, ${thinned} steps of ${columns.stat} were given up here to stay within memory. The first step, steps with the largest, ` +
    'smallest and most sudden values and steps with NaN or infinite values were kept; the recording has all of them.'
  );
}

function reader(table: StreamTable): (name: string, row: number) => unknown {
  const columns = new Map(table.names.map((name, at) => [name, table.children[at]]));
  return (name, row) => columns.get(name)?.at(row);
}

/** Distinct numbers among ascending ones. A loop: a long run has hundreds of thousands for every picture. */
function distinctIn(steps: ArrayLike<number>): number {
  let distinct = 0;
  for (let row = 0; row < steps.length; row += 1) {
    distinct += row > 0 && steps[row] === steps[row - 1] ? 0 : 1;
  }
  return distinct;
}
