import SPLIT_SCHEMA from '#protocol/split.schema.json';
import type { DeviceKind, SplitLayout, SplitRequest, SplitFamily } from '../protocol/split.generated';
import { schemaCheck } from '../../../../protocol/schema-check';
import { PlanError } from '../../plan/plan-shape';

/** The families of layouts, in the order of `SplitFamily`. */
export const SPLIT_FAMILIES: readonly SplitFamily[] = [
  'ordinary',
  'recompute',
  'pipeline',
  'pipeline_recompute',
  'split',
  'megafbd'
];

export const isApart = (family: SplitFamily): boolean => family === 'split' || family === 'megafbd';

export function forwardTensorOf({ family, tensor, forward_tensor }: SplitLayout): number {
  return family === 'megafbd' ? 1 : family === 'split' ? (forward_tensor ?? tensor) : tensor;
}

/**
 * Devices of each kind that a layout takes; of MegaFBD with a coordinator, of the kind that has most to
 * spare.
 * @returns null where there are not so many.
 */
export function devicesOf(
  layout: SplitLayout,
  kinds: readonly { readonly count: number }[]
): number[] | null {
  const { family, data, tensor, stages } = layout;
  const used = kinds.map(() => 0);
  const take = (kind: number | null | undefined, count: number): void => {
    if (kind !== null && kind !== undefined) {
      used[kind] = (used[kind] ?? 0) + count;
    }
  };
  for (const { device, forward_device } of stages) {
    take(device, data * tensor);
    take(forward_device, data * forwardTensorOf(layout));
  }
  if (family === 'megafbd') {
    const spare = kinds.map(({ count }, kind) => count - used[kind]!);
    take(spare.indexOf(Math.max(...spare)), 1);
  }
  return used.some((count, kind) => count > kinds[kind]!.count) ? null : used;
}

/**
 * What checks requests of a kind.
 * @throws PlanError `request` with the member that is no such value.
 */
export function requestCheck<T>(kind: 'RankMapRequest' | 'SplitRequest'): (value: unknown) => T {
  const check = schemaCheck({ $ref: `#/$defs/${kind}` }, SPLIT_SCHEMA.$defs);
  return value => {
    const wrong = check(value);
    if (wrong !== null) {
      const field = wrong.path.join('.');
      throw new PlanError('request', `${field || 'The request'} ${wrong.words}.`, { field });
    }
    return value as T;
  };
}

const checked = requestCheck<SplitRequest>('SplitRequest');

/** Stages times micro-batches that one simulation takes at most. */
export const MOST_PASSES = 1 << 20;

/** A complete kind of device: ms of a micro-batch through the model; memory in bytes, or Infinity. */
export interface IFullKind extends Required<Omit<DeviceKind, 'memory_bytes'>> {
  readonly memory: number;
}

/** A `SplitRequest` complete but for the layout. ms, bytes, and bytes a ms (Infinity where unlimited). */
export interface IFullSplitRequest extends Required<
  Omit<SplitRequest, 'bandwidth' | 'devices' | 'layers' | 'layout' | 'most_tensor'>
> {
  readonly devices: readonly IFullKind[];
  /** What each layer costs, as a share of the whole model. */
  readonly layers: readonly number[];
  /** Tensor-parallel degrees that are tried. */
  readonly tensors: readonly number[];
  readonly bandwidth: number;
  readonly layout: SplitLayout | undefined;
}

/**
 * Check a request that came from Python, a file or a form, and fill in what it leaves out.
 * @throws PlanError `request` with the member that is no such value; `fit` with that of a layout of one's own
 *   that does not go together with the rest.
 */
export function fullSplitRequest(value: unknown): IFullSplitRequest {
  const request = checked(value);
  const { layers = 12, most_tensor = 1, weight_bytes = 0, micro_batches } = request;
  const costs = typeof layers === 'number' ? new Array<number>(layers).fill(1) : layers;
  const total = costs.reduce((sum, cost) => sum + cost, 0);
  const full: IFullSplitRequest = {
    devices: request.devices.map(kind => {
      const { forward, recompute = forward, backward = 2 * recompute, optimizer = 0 } = kind;
      const { name, count, memory_bytes } = kind;
      return { name, count, forward, recompute, backward, optimizer, memory: memory_bytes ?? Infinity };
    }),
    layers: costs.map(cost => cost / total),
    micro_batches,
    tensors: [1, 2, 4, 8, 16, 32, 64].filter(degree => degree <= most_tensor),
    tensor_ms: request.tensor_ms ?? 0,
    latency: request.latency ?? 0,
    bandwidth: request.bandwidth ?? Infinity,
    message_bytes: request.message_bytes ?? 0,
    activation_bytes: request.activation_bytes ?? 0,
    weight_bytes,
    state_bytes: request.state_bytes ?? weight_bytes,
    ahead: request.ahead ?? 1,
    uncertainty: request.uncertainty ?? 0.05,
    layout: request.layout,
    seed: request.seed ?? 1
  };
  if (full.layout !== undefined) {
    checkLayout(full.layout, full);
  }
  return full;
}

function checkLayout(layout: SplitLayout, request: IFullSplitRequest): void {
  const { family, data, tensor, stages } = layout;
  const misfit = (field: string, words: string): PlanError =>
    new PlanError('fit', `layout.${field} ${words}.`, { field: `layout.${field}` });
  const { devices, layers, micro_batches } = request;
  const apart = isApart(family);
  if ((family === 'ordinary' || family === 'recompute') && stages.length > 1) {
    throw misfit('stages', `must be 1 for ${family}, got ${stages.length}. Try the family pipeline`);
  }
  if (micro_batches % data > 0) {
    throw misfit(
      'data',
      `must divide micro_batches, ${micro_batches}, got ${data}: replicas train equal parts. Try 1`
    );
  }
  const forward = layout.forward_tensor;
  if (forward !== undefined && (family !== 'split' || tensor % forward > 0)) {
    throw misfit(
      'forward_tensor',
      family === 'split'
        ? `must divide tensor, ${tensor}, got ${forward}. Try ${tensor}`
        : `must be left out for ${family}, got ${forward}: only a split has one`
    );
  }
  stages.forEach(({ device, forward_device }, stage) => {
    for (const [name, kind] of Object.entries({ device, forward_device })) {
      if (typeof kind === 'number' && kind >= devices.length) {
        throw misfit(
          `stages.${stage}.${name}`,
          `must be a kind of device, 0 to ${devices.length - 1}, got ${kind}. Try one of these`
        );
      }
    }
    const lacks = forward_device === undefined || forward_device === null;
    const mayLack = family === 'split' && stage === stages.length - 1 && stage > 0;
    if (apart ? lacks && !mayLack : !lacks) {
      throw misfit(
        `stages.${stage}.forward_device`,
        apart
          ? 'must be a kind of device: only the last of several stages of a split does without forward processes'
          : `must be left out for ${family}: only split and megafbd have forward processes`
      );
    }
  });
  const sum = stages.reduce((total, stage) => total + stage.layers, 0);
  if (sum !== layers.length) {
    throw misfit(
      'stages',
      `must have as many layers as the model, ${layers.length}, got ${sum} on ${stages.length} stages. Share out each layer once`
    );
  }
  if (stages.length * (micro_batches / data) > MOST_PASSES) {
    throw misfit(
      'stages',
      `times micro-batches of a replica must be at most ${MOST_PASSES}, got ${stages.length} and ${micro_batches / data}. Try fewer`
    );
  }
  const used = devicesOf(layout, devices);
  if (used === null) {
    throw misfit(
      'stages',
      `must take no more devices than there are, ${devices.map(({ name, count }) => `${count} of ${name}`).join(', ')}. Try fewer replicas or stages`
    );
  }
}
