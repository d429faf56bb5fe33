import type { Config, Configured, ConfigPatch, Hello, Status } from '../../../protocol/messages.generated';
import { withOwn } from '../../../protocol/records';
import type { IAuditEvent } from '../../../store/run-events';
import { MemoryRun } from '../../../store/__tests__/memory-run';
import type { IScalarColumns } from '../../../store/source';

export const HELLO: Hello = {
  type: 'hello',
  protocol: 'megalens.v2',
  run: { id: 'run-1', name: 'gpt-demo', started: 1_790_000_000 },
  seq: 0,
  model: { name: 'GPT', layers: 4, hidden: 128 },
  layout: { world_size: 1, tp: 1, pp: 1, dp: 1 },
  flags: [
    {
      name: 'MLP1_mat_mul',
      title: 'MLP1 output',
      layers: [1, 2, 3, 4],
      parts: [],
      axes: ['position', 'feature'],
      features: 512,
      bytes_per_layer: 128 * 512 * 4
    },
    {
      name: 'QKV_mat_mul',
      title: 'Query, key and value',
      layers: [1, 2, 3, 4],
      parts: ['q', 'k', 'v'],
      axes: ['position', 'feature'],
      features: 384,
      bytes_per_layer: 128 * 384 * 4
    },
    {
      name: 'RawAttentionScore_mat_mul',
      title: 'Attention probabilities',
      layers: [],
      parts: [],
      axes: ['head', 'query', 'key'],
      bytes_per_layer: null,
      reason: 'The model computes attention in one fused call.'
    }
  ],
  compressors: [
    {
      name: 'Projection',
      title: 'Projection',
      description: 'Project on vectors.',
      schema: {
        type: 'object',
        required: ['vectors'],
        properties: { vectors: { type: 'string', title: 'Vectors', minLength: 1 } }
      }
    },
    {
      name: 'Tile',
      title: 'Tile',
      description: 'One number a tile.',
      schema: {
        type: 'object',
        required: [],
        properties: {
          tiles: { type: 'integer', title: 'Tiles', minimum: 1, default: 96 },
          reduction: { type: 'string', title: 'Reduction', default: 'mean', examples: ['mean', 'max'] }
        }
      }
    }
  ],
  config: { flags: {} },
  limits: { max_message_bytes: 1, viewer_queue_bytes: 1, backlog_bytes: 1 },
  versions: {}
};

/** A run in memory that takes changes: the test decides how each is answered. */
export class ControlledRun extends MemoryRun {
  constructor(hello: Hello | null = structuredClone(HELLO)) {
    super(hello, 'run-1');
  }

  override status: Status | null = { type: 'status', state: 'training', step: 1240 };
  override moments = undefined;
  readonly audit = new Map<string, IAuditEvent>();
  columns: IScalarColumns = scalars([]);
  /** What the next configure does; by default it is accepted and applied three steps on. */
  answer: (patch: ConfigPatch, accepted?: (message: Configured) => void) => Promise<Configured> = async (
    patch,
    accepted
  ) => {
    const message = this.configured(patch, 'panel-1');
    accepted?.({ ...message, applied: false });
    await Promise.resolve();
    this.hello = this.hello && { ...this.hello, config: message.config };
    this.changed.emit({ kind: 'configured', message });
    return message;
  };

  configured(patch: ConfigPatch, id: string): Configured {
    const flags = Object.entries(patch.flags).reduce(
      (all, [flag, setting]) => withOwn(all, flag, setting ?? undefined),
      { ...this.hello?.config.flags }
    );
    const config: Config = { ...this.hello?.config, flags };
    if (patch.perturb === null) {
      delete config.perturb;
    } else if (patch.perturb !== undefined) {
      config.perturb = { ...patch.perturb, until: 1243 + (patch.perturb.steps ?? 100) - 1 };
    }
    if (patch.mode !== undefined) {
      const { paused = false, steps, while_watched = false } = { ...config.mode, ...patch.mode };
      config.mode = { paused: paused || steps !== undefined, while_watched };
    }
    if (patch.budget !== undefined) {
      config.budget = patch.budget;
    }
    for (const [name, settings] of Object.entries(patch.instruments ?? {})) {
      config.instruments = withOwn({ ...config.instruments }, name, settings);
    }
    return { type: 'configured', id, applied: true, step: 1243, config };
  }

  override configure(patch: ConfigPatch, accepted?: (message: Configured) => void): Promise<Configured> {
    this.patches.push(patch);
    return this.answer(patch, accepted);
  }

  override async scalars(): Promise<IScalarColumns> {
    return this.columns;
  }
}

/** Columns out of rows of step, name, value. */
export function scalars(rows: readonly (readonly [number, string, number])[]): IScalarColumns {
  return {
    step: Float64Array.from(rows, ([step]) => step),
    time: Float64Array.from(rows, () => 0),
    value: Float64Array.from(rows, ([, , value]) => value),
    name: rows.map(([, name]) => name),
    units: { loss: 'nats/byte' }
  };
}
