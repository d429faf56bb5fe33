import type { MomentRowsRequest } from '../../src/protocol/requests.generated';
import type {
  IMomentGroups,
  IMomentIndex,
  IMomentRows,
  IMomentSource,
  MomentStat
} from '../../src/store/row-moments';
import { tensorNames } from '../../src/store/__tests__/memory-moments';
import { noise } from './source';

/** What the synthetic statistics look like. */
export interface IMomentShape {
  layers: number;
  steps: number;
  /** Step at which one tensor is large for one step. */
  spike?: number;
  /** First step at which one tensor holds NaN; it stays so. */
  bad?: number;
  /** Whether the rows were made of raw sums in single precision. */
  rough?: boolean;
  /** Ranks that say every tensor, 1 unless told; one of them is larger from the middle on. */
  ranks?: number;
  /** Multiplies every deviation. */
  scale?: number;
}

const STATS: readonly MomentStat[] = ['param', 'grad', 'activation'];

/** Statistics of a synthetic training, in columns, so that a million rows are quick to make. */
export class SyntheticMoments implements IMomentSource {
  constructor(private readonly _shape: IMomentShape) {
    this._steps = _shape.steps;
    this._weights = tensorNames(_shape.layers);
    this._sites = tensorNames(_shape.layers, true);
  }

  get lastStep(): number {
    return this._steps;
  }

  /** Time that the rows took to make, ms: no part of what is measured. */
  madeIn = 0;

  /** Let one more step arrive. */
  advance(): void {
    this._steps += 1;
  }

  index(): Promise<IMomentIndex> {
    const stats = STATS.map(stat => ({
      stat,
      rows: this._namesOf(stat).length * this._steps * (this._shape.ranks ?? 1),
      first: 1,
      last: this._steps,
      steps: this._steps
    }));
    const names = [...this._weights, ...this._sites];
    return Promise.resolve({ version: String(this._steps), stats, names, samples: true, warnings: [] });
  }

  rows({ stats: [stat = 'grad'], steps }: MomentRowsRequest): Promise<IMomentRows | null> {
    const [first, last] = [Math.max(1, steps?.[0] ?? 1), Math.min(this._steps, steps?.[1] ?? this._steps)];
    const start = performance.now();
    const names = this._namesOf(stat);
    const offset = stat === 'activation' ? this._weights.length : 0;
    const { ranks = 1 } = this._shape;
    const length = Math.max(0, last - first + 1) * names.length * ranks;
    const column = (): Float64Array => new Float64Array(length);
    const rows = {
      nameId: new Int32Array(length),
      rank: new Int32Array(length),
      stage: new Int32Array(length),
      gradientStage: new Int32Array(length),
      step: column(),
      samples: column(),
      count: column().fill(262_144),
      mean: column(),
      m2: column(),
      m3: column(),
      m4: column(),
      min: column(),
      max: column(),
      nanCount: column(),
      infCount: column(),
      nearZeroCount: column(),
      rounding: column().fill(this._shape.rough ? 2 ** -24 : 0),
      lossScale: column().fill(1)
    };
    const layers = names.map(name => Number(/layers\.(\d+)/.exec(name)?.[1] ?? -1));
    const { spike, bad, scale = 1 } = this._shape;
    for (let row = 0; row < length; row += 1) {
      const id = row % names.length;
      const rank = Math.floor(row / names.length) % ranks;
      const step = first + Math.floor(row / names.length / ranks);
      const layer = layers[id] ?? 0;
      const base =
        stat === 'param' ? 0.02 + 1e-5 * step : stat === 'grad' ? 0.004 * Math.exp(-step / 900) + 0.001 : 1;
      const rise = layer >= 3 ? 1 + 1.5 / (1 + Math.exp(-(step - this._shape.steps * 0.6) / 40)) : 1;
      let std =
        scale * base * (1 + 0.15 * (layer + 1)) * rise * (1 + 0.12 * noise(step * 31 + id * 7 + rank * 3));
      std *= rank > 0 && rank === ranks - 3 && step > this._shape.steps / 2 ? 1.6 : 1;
      std *= step === spike && id === 6 ? 40 : 1;
      const kurtosis = 3 + 2 * (rise - 1) + 0.3 * Math.abs(noise(step + id * 13));
      const sick = bad !== undefined && step >= bad && id === 7 && stat === 'grad' && rank === ranks - 1;
      rows.step[row] = step;
      rows.rank[row] = rank;
      rows.samples[row] = 64 * step;
      rows.nameId[row] = offset + id;
      rows.mean[row] = this._shape.rough ? 30 * std : 0.01 * std;
      rows.m2[row] = 262_144 * std ** 2;
      rows.m4[row] = 262_144 * kurtosis * std ** 4;
      rows.min[row] = -4 * std;
      rows.max[row] = 4 * std;
      rows.nanCount[row] = sick ? 12 + step - bad : 0;
    }
    const stats = Array.from({ length }, () => stat);
    this.madeIn += performance.now() - start;
    return Promise.resolve({ ...rows, stat: stats, names: [...this._weights, ...this._sites] });
  }

  groups(): Promise<IMomentGroups> {
    return Promise.reject(new Error('These rows are all here.'));
  }

  private _namesOf(stat: MomentStat): readonly string[] {
    return stat === 'activation' ? this._sites : this._weights;
  }

  private _steps: number;
  private readonly _weights: readonly string[];
  private readonly _sites: readonly string[];
}
