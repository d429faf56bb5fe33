import { STREAMS } from '../../protocol/streams';
import type { Ask, IQuestion } from '../../client/rest';
import { own } from '../../protocol/records';
import { RowStore, type IStreamRows } from '../row-store';
import { Signal } from '@lumino/signaling';
import type { Configured, ConfigPatch, Hello, Phase, Status } from '../../protocol/messages.generated';
import type { ConnectionState, IRunSource, IScalarColumns, SourceChange } from '../source';
import type { ITensorQuery, ITensorResult, ITensorRow, ITensorShape, StepsQuery } from '../tensor-data';
import { MemoryMoments, type IMomentRow } from './memory-moments';
import { TensorStore } from '../tensor-store';

/** A run whose rows are in memory: a whole IRunSource, small enough to know every number. */
export class MemoryRun implements IRunSource {
  constructor(
    public hello: Hello | null = HELLO,
    readonly id = 'r1'
  ) {}

  name = 'gpt-demo';
  status: Status | null = null;
  connection: ConnectionState = { kind: 'live' };
  reading: readonly [number, number] | null = null;
  isDisposed = false;
  rows: ITensorRow[] = [];
  numbers: { step: number; name: string; value: number }[] = [];
  units: Record<string, string> = {};
  evictedRows = 0;
  limitBytes = 1 << 24;
  sampledEvery = 1;
  failure: Error | null = null;
  moments: MemoryMoments | undefined = new MemoryMoments();
  readonly asked: ITensorQuery[] = [];
  readonly patches: ConfigPatch[] = [];

  readonly changed: Signal<IRunSource, SourceChange> = new Signal(this);

  /** Let rows arrive. */
  add(...rows: Partial<ITensorRow>[]): void {
    this.rows.push(...rows.map(rowOf));
    const last = this.rows[this.rows.length - 1]?.step ?? 0;
    this.changed.emit({ kind: 'rows', stream: 'tensors', firstStep: last, lastStep: last });
  }

  /** Let statistics arrive. */
  log(...rows: IMomentRow[]): void {
    this.moments?.add(...rows);
    const last = rows[rows.length - 1]?.step ?? 0;
    this.changed.emit({ kind: 'rows', stream: 'moments', firstStep: last, lastStep: last });
  }

  connect(connection: ConnectionState): void {
    this.connection = connection;
    this.changed.emit({ kind: 'connection' });
  }

  /** Say how the training is. */
  tell(status: Status): void {
    this.status = status;
    this.changed.emit({ kind: 'status' });
  }

  steps(flag: string, phase?: Phase, of?: StepsQuery): Promise<readonly number[]> {
    return Promise.resolve(this.store().steps(flag, phase, of));
  }

  shapeOf(flag: string): Promise<ITensorShape> {
    return Promise.resolve(this.store().shapeOf(flag));
  }

  tensors(query: ITensorQuery): Promise<ITensorResult> {
    this.asked.push(query);
    if (this.failure) {
      return Promise.reject(this.failure);
    }
    const result = this.store().query(query);
    const evictedRows = this.evictedRows + result.evictedRows;
    return Promise.resolve({ ...result, evictedRows, sampledEvery: this.sampledEvery });
  }

  private store(): TensorStore {
    const store = new TensorStore(this.limitBytes);
    this.rows.forEach(row => store.add(row));
    return store;
  }

  scalars(): Promise<IScalarColumns> {
    return Promise.resolve({
      step: Float64Array.from(this.numbers, each => each.step),
      time: Float64Array.from(this.numbers, each => 1_790_000_000 + each.step),
      value: Float64Array.from(this.numbers, each => each.value),
      name: this.numbers.map(each => each.name),
      units: this.units
    });
  }

  table(stream = ''): ReturnType<IRunSource['table']> {
    const info = own(STREAMS, stream);
    const rows = this._streams.get(stream)?.() ?? (info && new RowStore(info).rows());
    return rows === undefined
      ? Promise.reject(new Error('this run has no other streams'))
      : Promise.resolve(rows);
  }

  /** Let rows of a stream arrive, the last of them of a step; `rows` gives all that there are. */
  arrive(stream: string, step: number, rows: () => IStreamRows): void {
    this._streams.set(stream, rows);
    this.changed.emit({ kind: 'rows', stream, firstStep: step, lastStep: step });
  }

  asker<R extends object, A>({ name }: IQuestion<R, A>): Ask<R, A> | undefined {
    return this._answers.get(name) as Ask<R, A> | undefined;
  }

  /** Have a question answered from now on, or by nobody. */
  answerTo<R extends object, A>({ name }: IQuestion<R, A>, ask: Ask<R, A> | undefined): void {
    this._answers.set(name, ask);
  }

  configure(patch: ConfigPatch, _accepted?: (message: Configured) => void): Promise<Configured> {
    this.patches.push(patch);
    return Promise.resolve({ type: 'configured', id: '1', applied: true, step: 1, config: { flags: {} } });
  }

  private readonly _streams = new Map<string, () => IStreamRows>();
  private readonly _answers = new Map<string, unknown>();

  dispose(): void {
    this.isDisposed = true;
    Signal.clearData(this);
  }
}

/** A row of MLP1 with 3 positions and 2 tiles; value = 100 × layer (1 unless told) + 10 × position + tile unless told. */
export function rowOf(row: Partial<ITensorRow>): ITensorRow {
  const layer = row.layer ?? 0;
  return {
    step: 1,
    microBatch: 0,
    phase: 'train',
    pass: 'forward',
    rank: 0,
    layer,
    flag: 'MLP1_mat_mul',
    part: '',
    compressor: "Tile(tiles=2, reduction='mean')",
    sourceShape: [16, 3, 512],
    shape: [1, 3, 2],
    values: Float32Array.from([0, 1, 10, 11, 20, 21], value => 100 * (row.layer ?? 1) + value),
    labels: [],
    nanCount: 0,
    infCount: 0,
    compressionError: NaN,
    call: 0,
    whole: null,
    ...row
  };
}

const flag = (name: string, title: string, layers: number[], axes: string[]): Hello['flags'][number] => ({
  name,
  title,
  layers,
  axes,
  parts: [],
  bytes_per_layer: null
});

/** What the memory run says of itself. */
export const HELLO: Hello = {
  type: 'hello',
  protocol: 'megalens.v2',
  run: { id: 'r1', name: 'gpt-demo', started: 0 },
  seq: 0,
  model: { name: 'gpt', layers: 4 },
  layout: { world_size: 1, tp: 1, pp: 1, dp: 1 },
  flags: [
    flag('InputTokens', 'Input tokens', [-1], ['position']),
    flag('MLP1_mat_mul', 'MLP1 output', [0, 1, 2, 3], ['position', 'feature']),
    flag('RawAttentionScore_mat_mul', 'Attention probabilities', [0, 1, 2, 3], ['head', 'query', 'key']),
    flag('HiddenStates', 'Hidden states', [0, 1, 2, 3], ['position', 'feature']),
    { ...flag('Router', 'Router logits', [], ['position', 'feature']), reason: 'its layers have no experts.' }
  ],
  compressors: [{ name: 'Tile', title: 'Tile', description: '', schema: {} }],
  config: { flags: { MLP1_mat_mul: { compressor: { name: 'Tile' } } } },
  limits: { max_message_bytes: 1, viewer_queue_bytes: 1, backlog_bytes: 1 },
  versions: {}
};
