import { Signal, type ISignal } from '@lumino/signaling';
import type { Configured, ConfigPatch, Hello, Phase, Status } from '../../src/protocol/messages.generated';
import { syntheticPipeline } from './pipeline';
import { syntheticTimeline } from './timeline';
import { SyntheticMoments, type IMomentShape } from './moments';
import type { IRunEvent } from '../../src/store/run-events';
import { alarmEvents, type IAlarm } from '../../src/instruments/monitor/store/alarms';
import { alarmRows } from '../../src/instruments/monitor/__tests__/alarm-rows';
import { PIPELINE } from '../../src/instruments/pipeline/client/pipeline-api';
import { TIMELINE } from '../../src/instruments/timeline/client/timeline-api';
import type { Ask, IQuestion } from '../../src/client/rest';
import { RunLink } from '../../src/store/run-link';
import type { ConnectionState, IRunSource, IScalarColumns, SourceChange } from '../../src/store/source';
import type { ITensorQuery, ITensorResult, ITensorRow } from '../../src/store/tensor-data';
import type { TimelineRequest } from '../../src/protocol/requests.generated';

/** What the synthetic run looks like. */
export interface ISyntheticShape {
  layers: number;
  positions: number;
  tiles: number;
  steps: number;
  /** Put NaN and infinite values into some cells. */
  nonFinite?: boolean;
  /** What happened to it. */
  events?: readonly IRunEvent[];
  /** What rules found. */
  alarms?: readonly IAlarm[];
  /** Whether it is a pipeline whose passes were recorded. */
  pipeline?: boolean;
  /** Statistics; absent where nothing logs them. */
  moments?: IMomentShape;
  /** How it is. */
  status?: Status;
  /** Scalars in sections, beside the usual four. */
  scalars?: number;
  /** By how much those lie above those of another run. */
  lift?: number;
  /** Most steps whose rows stay, as in a page that follows a run for long; all when absent. */
  bound?: number;
  /** Whether nothing is traced. */
  untraced?: boolean;
}

const LAYERED = { parts: [''], axes: ['position', 'feature'], bytes_per_layer: 65536 };

/** Repeatable noise, −1 to 1. */
export function noise(seed: number): number {
  const value = Math.sin(seed * 12.9898) * 43758.5453;
  return (value - Math.floor(value)) * 2 - 1;
}

/** A run in memory with real rows: what views see when no hub is near. */
export class SyntheticRun implements IRunSource {
  constructor(shape: ISyntheticShape) {
    this._shape = shape;
    for (let step = 1; step <= shape.steps; step++) {
      this._add(step);
    }
    this.hello = helloOf(shape.layers);
    this.moments = shape.moments && new SyntheticMoments(shape.moments);
    this.status = shape.status ?? null;
    if (shape.untraced) {
      this.hello.config.flags = {};
      const compressor = { name: 'Tile', params: { tiles: 64 } };
      this.hello.flags = this.hello.flags.map(flag => ({ ...flag, features: 256, compressor }));
    }
  }

  readonly moments: SyntheticMoments | undefined;

  readonly id = 'gpt-demo';
  readonly name = 'gpt-demo';
  hello: Hello | null;
  readonly status: Status | null;
  readonly link = new RunLink();
  connection: ConnectionState = { kind: 'live' };
  isDisposed = false;

  get changed(): ISignal<IRunSource, SourceChange> {
    return this._changed;
  }

  get lastStep(): number {
    return this._last;
  }

  async steps(flag: string, phase: Phase = 'train'): Promise<readonly number[]> {
    const rows = phase === 'train' ? (this._rows.get(flag) ?? []) : [];
    return [...new Set(rows.map(row => row.step))];
  }

  async shapeOf(flag: string): Promise<{ parts: readonly string[]; layers: readonly number[] }> {
    const rows = this._rows.get(flag) ?? [];
    return {
      parts: [...new Set(rows.map(row => row.part))],
      layers: [...new Set(rows.map(row => row.layer))]
    };
  }

  async tensors(query: ITensorQuery): Promise<ITensorResult> {
    const [first, last] = query.steps ?? [0, Infinity];
    const rows = (this._rows.get(query.flag) ?? []).filter(
      row =>
        row.step >= first &&
        row.step <= last &&
        (query.part === undefined || row.part === query.part) &&
        (query.layers?.includes(row.layer) ?? true)
    );
    return { rows, evictedRows: this.evicted, sampledEvery: this.sampled };
  }

  async scalars(): Promise<IScalarColumns> {
    const names = ['loss', 'held_out_loss', 'grad_norm', 'tokens_per_second'];
    const step: number[] = [];
    const value: number[] = [];
    const name: string[] = [];
    for (let at = Math.max(1, this._last - (this._shape.bound ?? Infinity)); at <= this._last; at++) {
      const loss = 1.6 + 4 * Math.exp(-at / 60) + 0.12 * noise(at);
      for (const [which, number] of [
        [0, this._shape.nonFinite && at === 40 ? NaN : loss],
        [1, at % 20 === 0 ? loss + 0.1 : null],
        [2, 1 + 0.4 * Math.abs(noise(at + 5))],
        [3, 8700 + 300 * noise(at + 9)]
      ] as const) {
        if (number !== null) {
          step.push(at);
          name.push(names[which] ?? '');
          value.push(number);
        }
      }
    }
    const many = Array.from({ length: this._shape.scalars ?? 0 }, (_, at) => {
      const section = ['train', 'eval', 'optimizer'][at % 3] ?? '';
      return `${section}/metric_${Math.floor(at / 3)}`;
    });
    many.forEach((each, which) => {
      for (let at = 1; at <= this._last; at++) {
        step.push(at);
        name.push(each);
        value.push(
          (1 + which) * Math.exp(-at / (20 + which)) +
            0.05 * noise(at * (which + 1)) +
            (this._shape.lift ?? 0)
        );
      }
    });
    return {
      step: Float64Array.from(step),
      time: Float64Array.from(step, each => 1790000000 + each * 0.05),
      value: Float64Array.from(value),
      name,
      units: {
        ...{ loss: 'nats/byte', held_out_loss: 'nats/byte', grad_norm: '', tokens_per_second: '1/s' },
        ...Object.fromEntries(many.map(each => [each, '']))
      }
    };
  }

  table(stream: string): ReturnType<IRunSource['table']> {
    return stream === 'alarms'
      ? Promise.resolve(alarmRows(this._shape.alarms ?? []))
      : Promise.reject(new Error('this run has no other streams'));
  }

  asker<R extends object, A>({ name }: IQuestion<R, A>): Ask<R, A> | undefined {
    const { pipeline } = this._shape;
    const answers: Record<string, unknown> = {
      [TIMELINE.name]: async (request: TimelineRequest) => syntheticTimeline(request),
      [PIPELINE.name]: async () => (pipeline ? syntheticPipeline() : null)
    };
    return answers[name] as Ask<R, A> | undefined;
  }

  events(): Promise<readonly IRunEvent[]> {
    const { events = [], alarms = [] } = this._shape;
    return Promise.resolve([...events, ...alarmEvents(alarms)].sort((a, b) => a.first - b.first));
  }

  configure(_patch: ConfigPatch): Promise<Configured> {
    return Promise.reject(new Error('The synthetic run takes no settings.'));
  }

  /** Let one more step arrive. */
  advance(): void {
    this._add(this._last + 1);
    for (const stream of ['tensors', 'scalars', 'spans']) {
      this._changed.emit({ kind: 'rows', stream, firstStep: this._last, lastStep: this._last });
    }
  }

  /** Let the statistics of one more step arrive. */
  advanceMoments(): void {
    this.moments?.advance();
    const last = this.moments?.lastStep ?? 0;
    this._changed.emit({ kind: 'rows', stream: 'moments', firstStep: last, lastStep: last });
  }

  /** Take another connection state. */
  connect(connection: ConnectionState): void {
    this.connection = connection;
    this._changed.emit({ kind: 'connection' });
  }

  dispose(): void {
    this.isDisposed = true;
    Signal.clearData(this);
  }

  evicted = 0;
  sampled = 1;

  private _add(step: number): void {
    this._last = step;
    const { bound = Infinity } = this._shape;
    for (const row of step > bound ? makeRows(this._shape, step) : rowsOf(this._shape, step)) {
      const rows = this._rows.get(row.flag) ?? [];
      this._rows.set(
        row.flag,
        rows.filter(each => each.step > step - bound)
      );
      this._rows.get(row.flag)?.push(row);
    }
  }

  private readonly _shape: ISyntheticShape;
  private readonly _rows = new Map<string, ITensorRow[]>();
  private readonly _changed = new Signal<IRunSource, SourceChange>(this);
  private _last = 0;
}

/** Rows by shape and step; to make them takes longer than to draw a view of them, and every view that is shown has a run of its own. */
const MADE = new Map<string, readonly ITensorRow[]>();

/** What a step brings to every run of a shape. */
function rowsOf(shape: ISyntheticShape, step: number): readonly ITensorRow[] {
  const { layers, positions, tiles, nonFinite } = shape;
  const key = JSON.stringify([layers, positions, tiles, nonFinite, step]);
  const rows = MADE.get(key) ?? makeRows(shape, step);
  MADE.set(key, rows);
  return rows;
}

function makeRows(shape: ISyntheticShape, step: number): ITensorRow[] {
  const rows: ITensorRow[] = [];
  const keep = (
    row: Partial<ITensorRow> & Pick<ITensorRow, 'step' | 'layer' | 'flag' | 'values' | 'shape'>
  ): void => {
    const nanCount = row.values.filter(value => Number.isNaN(value)).length;
    rows.push({
      microBatch: 0,
      phase: 'train',
      pass: 'forward',
      rank: 0,
      part: '',
      compressor: `Tile(tiles=${shape.tiles}, reduction='mean')`,
      sourceShape: [16, ...row.shape.slice(1)],
      labels: [],
      nanCount,
      infCount: row.values.filter(value => !Number.isNaN(value) && !Number.isFinite(value)).length,
      compressionError: NaN,
      call: 0,
      whole: null,
      ...row
    });
  };
  const { layers, positions, tiles } = shape;
  for (let layer = 0; layer < layers; layer++) {
    const grow = layer >= 2 ? 1 + 2 / (1 + Math.exp(-(step - 60) / 6)) : 1;
    const values = new Float32Array(positions * tiles);
    for (let at = 0; at < values.length; at++) {
      const [position, tile] = [Math.floor(at / tiles), at % tiles];
      const wave = Math.sin(position / 9 + layer + step / 20) * Math.cos(tile / 7 - layer);
      values[at] = grow * (0.3 * wave + 0.08 * noise(at + 1000 * layer + step));
    }
    if (shape.nonFinite && layer === 1) {
      values.set([NaN, Infinity, NaN], tiles * 12 + 20);
      values.set([NaN, NaN, NaN, NaN], tiles * 13 + 21);
    }
    keep({ step, layer, flag: 'MLP1_mat_mul', values, shape: [1, positions, tiles] });
  }
  const heads = new Float32Array(4 * 48 * 48);
  for (let at = 0; at < heads.length; at++) {
    const [head, query, key] = [Math.floor(at / 2304), Math.floor(at / 48) % 48, at % 48];
    heads[at] = key > query ? 0 : Math.exp(-(query - key) / (2 + head * 4 + 2 * Math.abs(noise(at))));
  }
  keep({
    step,
    layer: 0,
    flag: 'RawAttentionScore_mat_mul',
    values: heads,
    shape: [1, 4, 48, 48],
    compressor: 'NoOp()'
  });
  const words = 'The quick brown fox jumps over the lazy dog and then runs home again . '.split(/(?<= )/);
  const labels = Array.from({ length: positions }, (_, at) => words[at % words.length] ?? '');
  keep({
    step,
    layer: -1,
    flag: 'InputTokens',
    part: 'ids',
    labels,
    values: Float32Array.from(labels, (_, at) => at),
    shape: [1, positions],
    compressor: 'NoOp()'
  });
  return rows;
}

function helloOf(layers: number): Hello {
  const all = Array.from({ length: layers }, (_, at) => at);
  return {
    type: 'hello',
    protocol: 'megalens.v2',
    run: { id: 'gpt-demo', name: 'gpt-demo', started: 1790000000 },
    seq: 0,
    model: { name: 'gpt', layers },
    layout: { world_size: 1, tp: 1, pp: 1, dp: 1 },
    flags: [
      {
        name: 'InputTokens',
        title: 'Input tokens',
        layers: [-1],
        parts: ['ids'],
        axes: ['position'],
        bytes_per_layer: 512
      },
      { name: 'MLP1_mat_mul', title: 'MLP1 output', layers: all, ...LAYERED },
      {
        name: 'RawAttentionScore_mat_mul',
        title: 'Attention probabilities',
        layers: all,
        ...LAYERED,
        axes: ['head', 'query', 'key']
      },
      { name: 'HiddenStates', title: 'Hidden states', layers: all, ...LAYERED },
      {
        name: 'Router',
        title: 'Router logits',
        layers: [],
        ...LAYERED,
        reason: 'its layers have no experts.'
      }
    ],
    compressors: [{ name: 'Tile', title: 'Tile', description: 'Reduce tiles.', schema: {} }],
    config: {
      flags: {
        MLP1_mat_mul: { compressor: { name: 'Tile' } },
        RawAttentionScore_mat_mul: { compressor: { name: 'NoOp' } }
      }
    },
    limits: { max_message_bytes: 1048576, viewer_queue_bytes: 1048576, backlog_bytes: 1048576 },
    versions: {}
  };
}
