import { byName } from '../../protocol/by-name';
import { encodeFrame } from '../../protocol/encode-frame';
import { HEADER_BYTES } from '../../protocol/frame';
import { streamTable } from '../../protocol/frame-table';
import { STREAMS } from '../../protocol/streams.generated';
import type { IAlarm } from '../../instruments/monitor/store/alarms';
import { RowStore, type IStreamRows } from '../row-store';
import { Signal } from '@lumino/signaling';
import type { Configured, ConfigPatch, Hello, Phase, Status } from '../../protocol/messages.generated';
import type {
  ConnectionState,
  IRunSource,
  IScalarColumns,
  ITensorQuery,
  ITensorResult,
  ITensorRow,
  ITensorShape,
  SourceChange,
  StepsQuery
} from '../source';
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
  isDisposed = false;
  rows: ITensorRow[] = [];
  numbers: { step: number; name: string; value: number }[] = [];
  units: Record<string, string> = {};
  alarms: IAlarm[] = [];
  evictedRows = 0;
  limitBytes = 1 << 24;
  sampledEvery = 1;
  failure: Error | null = null;
  moments: MemoryMoments | undefined = new MemoryMoments();
  alarmCounts: IRunSource['alarmCounts'];
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

  table(stream?: string): ReturnType<IRunSource['table']> {
    return stream === 'alarms'
      ? Promise.resolve(alarmRows(this.alarms))
      : Promise.reject(new Error('this run has no other streams'));
  }

  /** Let alarms arrive. */
  alarm(...rows: Partial<IAlarm>[]): void {
    this.alarms.push(...rows.map(alarmRow));
    const last = this.alarms[this.alarms.length - 1]?.step ?? 0;
    this.changed.emit({ kind: 'rows', stream: 'alarms', firstStep: last, lastStep: last });
  }

  configure(patch: ConfigPatch, _accepted?: (message: Configured) => void): Promise<Configured> {
    this.patches.push(patch);
    return Promise.resolve({ type: 'configured', id: '1', applied: true, step: 1, config: { flags: {} } });
  }

  dispose(): void {
    this.isDisposed = true;
    Signal.clearData(this);
  }
}

/** A jump of the gradient of a weight of layer 1 at step 1 on rank 0, unless told. */
export function alarmRow(row: Partial<IAlarm>): IAlarm {
  return {
    step: 1,
    rank: 0,
    microBatch: -1,
    rule: 'jump',
    severity: 'warning',
    direction: 'backward',
    stat: 'grad',
    name: 'decoder.layers.1.mlp.linear_fc1.weight',
    statistic: 'rms',
    value: 8,
    expected: 2,
    sentence: 'It is far above its usual level.',
    place: 0,
    samples: '',
    ...row
  };
}

/** Alarms as the rows of their stream. */
export function alarmRows(alarms: readonly IAlarm[]): IStreamRows {
  const store = new RowStore(STREAMS.alarms);
  store.append(streamTable('alarms', alarmBytes(alarms)), false);
  return store.rows();
}

/** Alarms as an Arrow IPC stream. */
export function alarmBytes(alarms: readonly IAlarm[]): Uint8Array {
  const column = <K extends keyof IAlarm>(name: K): IAlarm[K][] => alarms.map(each => each[name]);
  const zeros = new Float64Array(alarms.length);
  const { microBatch: micro_batch, ...columns } = {
    ...byName(Object.keys(alarmRow({})) as (keyof IAlarm)[], column),
    time: zeros,
    stage: zeros.map(() => -1)
  };
  return encodeFrame('alarms', { ...columns, micro_batch }, { step: -1, timeUs: 0 }).slice(HEADER_BYTES);
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
