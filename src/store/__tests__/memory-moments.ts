import type {
  IMomentGroups,
  IMomentIndex,
  IMomentRows,
  IMomentSource,
  MomentStat,
  ReadingProgress
} from '../row-moments';
import type { MomentGroupsRequest, MomentRowsRequest } from '../../protocol/requests.generated';

/** One row as a test says it; what is left out is of an ordinary tensor of 1,000 values. */
export interface IMomentRow {
  step: number;
  name: string;
  stat?: MomentStat;
  samples?: number;
  rank?: number;
  stage?: number;
  gradientStage?: number;
  count?: number;
  mean?: number;
  std?: number;
  kurtosis?: number;
  nan?: number;
  inf?: number;
  rounding?: number;
  lossScale?: number;
}

/** The statistics of a run whose rows are in memory. */
export class MemoryMoments implements IMomentSource {
  readonly warnings: string[] = [];
  /** Steps of each query of rows; a source that brings rows is asked once for each version and stat. */
  asked = 0;

  /** Keep rows; they come by ascending step. */
  add(...rows: IMomentRow[]): void {
    this._rows.push(...rows);
    this._version += 1;
  }

  index(_signal?: AbortSignal, _told?: ReadingProgress): Promise<IMomentIndex> {
    const stats = [...new Set(this._rows.map(row => row.stat ?? 'grad'))].map(stat => {
      const rows = this._rows.filter(row => (row.stat ?? 'grad') === stat);
      const steps = [...new Set(rows.map(row => row.step))];
      return {
        stat,
        rows: rows.length,
        first: Math.min(...steps.slice(0, 1)),
        last: Math.max(...steps.slice(-1)),
        steps: steps.length
      };
    });
    return Promise.resolve({
      version: String(this._version),
      stats,
      names: this._names(),
      samples: this._rows.every(row => row.samples !== undefined),
      warnings: this.warnings
    });
  }

  rows({ stats, steps }: MomentRowsRequest): Promise<IMomentRows | null> {
    this.asked += 1;
    const names = this._names();
    const ids = new Map(names.map((name, id) => [name, id]));
    const [first, last] = steps ?? [-Infinity, Infinity];
    const rows = this._rows.filter(
      row => stats.includes(row.stat ?? 'grad') && row.step >= first && row.step <= last
    );
    const column = (read: (row: IMomentRow) => number): Float64Array => Float64Array.from(rows, read);
    const whole = (read: (row: IMomentRow) => number): Int32Array => Int32Array.from(rows, read);
    const spread = ({ std = 1, count = 1000 }: IMomentRow, power: number): number => count * std ** power;
    return Promise.resolve({
      stat: rows.map(row => row.stat ?? 'grad'),
      nameId: whole(row => ids.get(row.name) ?? 0),
      names,
      step: column(row => row.step),
      samples: column(row => row.samples ?? -1),
      rank: whole(row => row.rank ?? 0),
      stage: whole(row => row.stage ?? 0),
      gradientStage: whole(row => row.gradientStage ?? 0),
      count: column(row => row.count ?? 1000),
      mean: column(row => row.mean ?? 0),
      m2: column(row => spread(row, 2)),
      m3: column(() => 0),
      m4: column(row => (row.kurtosis ?? 3) * spread(row, 4)),
      min: column(row => (row.mean ?? 0) - 4 * (row.std ?? 1)),
      max: column(row => (row.mean ?? 0) + 4 * (row.std ?? 1)),
      nanCount: column(row => row.nan ?? 0),
      infCount: column(row => row.inf ?? 0),
      nearZeroCount: column(() => 0),
      rounding: column(row => row.rounding ?? 0),
      lossScale: column(row => row.lossScale ?? 1)
    });
  }

  groups(_query: MomentGroupsRequest): Promise<IMomentGroups> {
    return Promise.reject(new Error('These rows are all here.'));
  }

  private _names(): string[] {
    return [...new Set(this._rows.map(row => row.name))];
  }

  private readonly _rows: IMomentRow[] = [];
  private _version = 0;
}

/** Names of the tensors of a small transformer. */
export function tensorNames(layers: number, sites = false): string[] {
  const modules = [
    'embedding.word_embeddings',
    ...Array.from({ length: layers }, (_, layer) =>
      ['self_attention.linear_qkv', 'self_attention.linear_proj', 'mlp.linear_fc1', 'mlp.linear_fc2'].map(
        module => `decoder.layers.${layer}.${module}`
      )
    ).flat()
  ];
  return sites
    ? modules.flatMap(module => [`${module}/input0`, `${module}/output0`])
    : modules.map(module => `${module}.weight`);
}

/** Gradients of a transformer of some layers at steps 1 to `steps`; the deviation is the layer's number and one more. */
export function grads(
  layers: number,
  steps: number,
  of: (step: number, layer: number) => Partial<IMomentRow> = () => ({})
): IMomentRow[] {
  return Array.from({ length: steps }, (_, at) => at + 1).flatMap(step =>
    tensorNames(layers).map(name => {
      const layer = Number(/layers\.(\d+)/.exec(name)?.[1] ?? -1);
      return { step, name, samples: 16 * step, std: layer + 1.5, ...of(step, layer) };
    })
  );
}
