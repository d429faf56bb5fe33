import type { MomentRowsRequest } from '../../protocol/requests.generated';
import type { IMomentGroups, IMomentIndex, IMomentRows, IMomentSource, MomentStat } from '../../store';

/** One row as a test writes it; what is absent is a tensor of one value 0 at step 1. */
export interface IRow {
  stat?: MomentStat;
  name?: string;
  step?: number;
  samples?: number;
  rank?: number;
  stage?: number;
  gradientStage?: number;
  count?: number;
  mean?: number;
  m2?: number;
  m3?: number;
  m4?: number;
  min?: number;
  max?: number;
  nanCount?: number;
  infCount?: number;
  nearZeroCount?: number;
  rounding?: number;
  lossScale?: number;
}

/** Rows as columns; names are coded in the order in which they come. */
export function momentRows(rows: readonly IRow[]): IMomentRows {
  const names = [...new Set(rows.map(row => row.name ?? 'w'))];
  const places = new Map(names.map((name, place) => [name, place]));
  const floats = (name: keyof IRow, otherwise: number): Float64Array =>
    Float64Array.from(rows, row => Number(row[name] ?? otherwise));
  return {
    stat: rows.map(row => row.stat ?? 'grad'),
    nameId: Int32Array.from(rows, row => places.get(row.name ?? 'w') ?? -1),
    names,
    step: floats('step', 1),
    samples: floats('samples', -1),
    rank: Int32Array.from(rows, row => row.rank ?? -1),
    stage: Int32Array.from(rows, row => row.stage ?? -1),
    gradientStage: Int32Array.from(rows, row => row.gradientStage ?? 0),
    count: floats('count', 1),
    mean: floats('mean', 0),
    m2: floats('m2', 0),
    m3: floats('m3', 0),
    m4: floats('m4', 0),
    min: floats('min', NaN),
    max: floats('max', NaN),
    nanCount: floats('nanCount', 0),
    infCount: floats('infCount', 0),
    nearZeroCount: floats('nearZeroCount', 0),
    rounding: floats('rounding', 0),
    lossScale: floats('lossScale', 1)
  };
}

/** A run in memory that counts what it is asked, and of which rows can come later. */
export class RowSource implements IMomentSource {
  constructor(public all: readonly IRow[]) {}

  /** Steps that rows were asked of. */
  readonly asked: (readonly [number, number] | null)[] = [];
  /** What the server would answer; rows are too many when it is set. */
  server: IMomentGroups | null = null;
  readonly serverAsked: unknown[] = [];
  version = 0;

  add(rows: readonly IRow[]): void {
    this.all = [...this.all, ...rows];
    this.version += 1;
  }

  async index(): Promise<IMomentIndex> {
    const stats = [...new Set(this.all.map(row => row.stat ?? 'grad'))].map(stat => {
      const steps = this.of(stat).map(row => row.step ?? 1);
      return {
        stat,
        rows: steps.length,
        first: Math.min(...steps),
        last: Math.max(...steps),
        steps: new Set(steps).size
      };
    });
    return { version: String(this.version), stats, names: this.names, samples: false, warnings: [] };
  }

  async rows({ stats, steps }: MomentRowsRequest): Promise<IMomentRows | null> {
    this.asked.push(steps ?? null);
    const [first, last] = steps ?? [-Infinity, Infinity];
    const inside = stats
      .flatMap(stat => this.of(stat))
      .filter(row => (row.step ?? 1) >= first && (row.step ?? 1) <= last)
      .sort((a, b) => (a.step ?? 1) - (b.step ?? 1));
    // As the server does, names are numbered anew in every answer.
    return this.server === null ? momentRows(inside) : null;
  }

  async groups(query: unknown): Promise<IMomentGroups> {
    this.serverAsked.push(query);
    if (this.server === null) {
      throw new Error('Nobody was to ask the server.');
    }
    return this.server;
  }

  private of(stat: MomentStat): IRow[] {
    return this.all.filter(row => (row.stat ?? 'grad') === stat);
  }

  private get names(): string[] {
    return [...new Set(this.all.map(row => row.name ?? 'w'))];
  }
}

/** An answer as one line for each group: its key, and value by step. */
export function lines(groups: IMomentGroups): Record<string, Record<number, number>> {
  const found: Record<string, Record<number, number>> = {};
  groups.group.forEach((group, row) => {
    const key = (groups.keys[group] ?? []).map(part => part ?? 'null').join(' | ') || 'total';
    found[key] = { ...found[key], [groups.step[row] ?? NaN]: groups.value[row] ?? NaN };
  });
  return found;
}
