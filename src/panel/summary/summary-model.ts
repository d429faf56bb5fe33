import type { IRunSource, IScalarColumns, SourceChange } from '../../store/source';
import { own } from '../../protocol/records';
import { SourceModel } from '../shell/source-model';

export interface ISummaryFigure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly step: number;
}

/** Points of the sparkline, x by step, at most `SPARK_POINTS` of them. */
export interface ISpark {
  readonly steps: readonly number[];
  readonly values: readonly number[];
}

const SPARK_POINTS = 60;
const READ_EVERY = 500;

/** The chosen run's newest readings and the sparkline of its loss. Names as in `protocol/streams.json`. */
export class SummaryModel extends SourceModel {
  constructor(source: IRunSource) {
    super(source);
    void this._read();
  }

  get loss(): ISummaryFigure | null {
    return this._readings.get(this._lossName) ?? null;
  }

  get heldOut(): ISummaryFigure | null {
    return this._readings.get('held_out_loss') ?? null;
  }

  get tokensPerSecond(): ISummaryFigure | null {
    return this._readings.get('tokens_per_second') ?? null;
  }

  get spark(): ISpark {
    return this._spark;
  }

  /** Why the scalars could not be read, or null. */
  get fault(): string | null {
    return this._fault;
  }

  /** Seconds since the last frame, or null unless the source is stale. */
  staleFor(now = Date.now()): number | null {
    const { connection } = this.source;
    return connection.kind === 'stale' ? Math.max(0, (now - connection.since) / 1000) : null;
  }

  protected heard(change: SourceChange): void {
    if (change.kind === 'rows' && change.stream === 'scalars') {
      void this._read();
    } else if (change.kind === 'hello' || change.kind === 'status' || change.kind === 'connection') {
      if (change.kind === 'connection' && this._readings.size === 0) {
        void this._read();
      }
      this.gate.note();
    }
  }

  private async _read(): Promise<void> {
    if (this._reading) {
      this._isPending = true;
      return;
    }
    this._reading = true;
    try {
      do {
        this._isPending = false;
        const columns = await this.source.scalars(null);
        if (this.isDisposed) {
          return;
        }
        this._take(columns);
        if (this._isPending) {
          this.emit();
          // People read at most twice a second; a long run's columns are not walked more often.
          await new Promise(resolve => setTimeout(resolve, READ_EVERY));
        }
      } while (this._isPending && !this.isDisposed);
      this._fault = null;
    } catch (error) {
      this._fault = error instanceof Error ? error.message : String(error);
    } finally {
      this._reading = false;
    }
    this.emit();
  }

  private _take(columns: IScalarColumns): void {
    const { name, step, value, units } = columns;
    this._readings.clear();
    for (let i = 0; i < name.length; i++) {
      const key = name[i]!;
      this._readings.set(key, { name: key, value: value[i]!, unit: own(units, key) ?? '', step: step[i]! });
    }
    this._lossName = this._readings.has('loss')
      ? 'loss'
      : ([...this._readings.keys()].find(key => key.includes('loss') && key !== 'held_out_loss') ?? 'loss');
    const points = [...name.keys()].filter(i => name[i] === this._lossName);
    this._spark = thinned(
      points.map(i => step[i]!),
      points.map(i => value[i]!)
    );
  }

  private readonly _readings = new Map<string, ISummaryFigure>();
  private _lossName = 'loss';
  private _spark: ISpark = { steps: [], values: [] };
  private _fault: string | null = null;
  private _reading = false;
  private _isPending = false;
}

/** Retain the newest value of each block of neighbouring points: a sparkline needs only the shape. */
function thinned(steps: readonly number[], values: readonly number[]): ISpark {
  const stride = Math.max(1, Math.ceil(steps.length / SPARK_POINTS));
  const keep = (_: number, i: number) => (steps.length - 1 - i) % stride === 0;
  return { steps: steps.filter(keep), values: values.filter(keep) };
}
