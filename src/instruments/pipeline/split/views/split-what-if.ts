import { formatNumber } from '../../../../charts';
import type { SplitOptions } from '../../../../protocol/views.generated';
import type { Translate } from '../../../../views/shared/translate';
import {
  bandwidthSlider,
  countSlider,
  GB,
  GB_PER_S,
  MB,
  memorySlider,
  percentSlider,
  sizeSlider,
  timeSlider,
  type ISlider
} from '../../views/what-if';
import type { IMeasuredSplit } from '../plan/measured-split';
import { splitRequestOf } from '../plan/partial-request';
import type { DeviceKind, SplitRequest } from '../protocol/split.generated';

export function splitSliders(t: Translate): Readonly<Record<SplitSetting, ISlider>> {
  return {
    devices: countSlider(t('Devices'), 64),
    others: countSlider(t('Others'), 64, 0),
    others_slower: {
      label: t('Others take'),
      least: 0.01,
      most: 100,
      scale: 'log',
      say: value => t('%1 times as long', formatNumber(value, 3))
    },
    forward: timeSlider(t('Forward, whole model')),
    backward: timeSlider(t('Backward, whole model')),
    micro_batches: countSlider(t('Micro-batches'), 128),
    model_layers: countSlider(t('Layers'), 128),
    most_tensor: countSlider(t('Tensor parallel up to'), 8),
    ahead: countSlider(t('Recomputed ahead'), 8),
    latency: { ...timeSlider(t('Latency')), least: 0.001 },
    bandwidth: bandwidthSlider(t),
    message_mb: sizeSlider(t('Message')),
    activation_mb: sizeSlider(t('Activations, whole model')),
    weight_mb: sizeSlider(t('Weights')),
    state_mb: sizeSlider(t('Training state')),
    memory_gb: memorySlider(t('Memory'), t),
    others_memory_gb: memorySlider(t('Memory of others'), t),
    uncertainty: percentSlider(t('Times may be off by'), 50, t)
  };
}

const USUAL_LAYERS = 12;

/** The least devices of a split: forward passes on one, backward passes on another. */
const NEEDED = 2;

const countOf = (devices: readonly DeviceKind[]): number =>
  devices.reduce((sum, { count }) => sum + count, 0);

/** Whether what is asked has too few devices for any split. */
export const isTooFew = ({ count }: Pick<ISplitWhatIf, 'count'>): boolean => count < NEEDED;

type Options = Required<SplitOptions>;

export type SplitSetting =
  | 'activation_mb'
  | 'ahead'
  | 'backward'
  | 'bandwidth'
  | 'devices'
  | 'forward'
  | 'latency'
  | 'memory_gb'
  | 'message_mb'
  | 'micro_batches'
  | 'model_layers'
  | 'most_tensor'
  | 'others'
  | 'others_memory_gb'
  | 'others_slower'
  | 'state_mb'
  | 'uncertainty'
  | 'weight_mb';

/** What the planner is asked, and the number that stands for each setting in it. */
export interface ISplitWhatIf {
  readonly request: SplitRequest;
  readonly values: Readonly<Record<SplitSetting, number>>;
  /** Devices of all kinds. */
  readonly count: number;
  /** Whether a second device like the run's only one was added, since no split is of one. */
  readonly isExample: boolean;
}

/** What the options ask the planner, filled up with what was measured; null where nothing was. */
export function splitWhatIf(options: Options, measured: IMeasuredSplit | null): ISplitWhatIf {
  const base = splitRequestOf({}, measured);
  const isExample = countOf(base.devices) < NEEDED && options.devices === null && options.others === null;
  const devices = devicesOf(isExample ? { ...options, devices: NEEDED } : options, base.devices);
  const isOwn = JSON.stringify(devices) === JSON.stringify(base.devices);
  const {
    ahead,
    bandwidth,
    latency,
    micro_batches: count,
    model_layers: layers,
    most_tensor: most
  } = options;
  const request = splitRequestOf(
    {
      ...(isOwn ? {} : { devices }),
      ...(count === null ? {} : { micro_batches: count }),
      ...(layers === null ? {} : { layers }),
      ...(most === null ? {} : { most_tensor: most }),
      ...(ahead === null ? {} : { ahead }),
      ...(latency === null ? {} : { latency }),
      ...(bandwidth === null ? {} : { bandwidth: bandwidth === 0 ? null : bandwidth * GB_PER_S }),
      message_bytes: options.message_mb * MB,
      activation_bytes: options.activation_mb * MB,
      weight_bytes: options.weight_mb * MB,
      state_bytes: (options.state_mb ?? options.weight_mb) * MB,
      uncertainty: options.uncertainty / 100
    },
    measured
  );
  const [first, second] = request.devices;
  const forward = first?.forward ?? 1;
  return {
    request,
    count: countOf(request.devices),
    isExample,
    values: {
      devices: first?.count ?? 1,
      others: second?.count ?? 0,
      forward,
      backward: first?.backward ?? 2 * (first?.recompute ?? forward),
      others_slower: (second?.forward ?? forward) / forward || 1,
      micro_batches: request.micro_batches,
      model_layers: Array.isArray(request.layers) ? request.layers.length : (request.layers ?? USUAL_LAYERS),
      most_tensor: request.most_tensor ?? 1,
      ahead: request.ahead ?? 1,
      latency: request.latency ?? 0,
      bandwidth: (request.bandwidth ?? 0) / GB_PER_S,
      message_mb: options.message_mb,
      activation_mb: options.activation_mb,
      weight_mb: options.weight_mb,
      state_mb: options.state_mb ?? options.weight_mb,
      memory_gb: options.memory_gb ?? 0,
      others_memory_gb: options.others_memory_gb ?? 0,
      uncertainty: options.uncertainty
    }
  };
}

/**
 * Kinds of devices as they are changed: what is said of the first holds for it alone, and what the second
 * takes follows it only where somebody says how many times as long.
 */
function devicesOf(options: Options, [first, second]: readonly DeviceKind[]): DeviceKind[] {
  const of = (kind: DeviceKind, memory: number | null): DeviceKind =>
    memory === null ? kind : { ...kind, memory_bytes: memory * GB };
  const { forward, backward, others_slower: slower } = options;
  const own: DeviceKind = {
    ...(first ?? { name: 'devices', count: 1, forward: 1 }),
    ...(options.devices === null ? {} : { count: options.devices }),
    ...(forward === null ? {} : { forward, recompute: forward }),
    ...(backward === null ? {} : { backward })
  };
  const count = options.others ?? second?.count ?? 0;
  const like = second ?? { ...own, name: 'other devices' };
  const other: DeviceKind = {
    ...like,
    count,
    ...(slower === null ? {} : slowed(own, slower))
  };
  return [of(own, options.memory_gb), ...(count > 0 ? [of(other, options.others_memory_gb)] : [])];
}

function slowed({ forward, recompute, backward, optimizer }: DeviceKind, by: number): Partial<DeviceKind> {
  return {
    forward: forward * by,
    ...(recompute === undefined ? {} : { recompute: recompute * by }),
    ...(backward === undefined ? {} : { backward: backward * by }),
    ...(optimizer === undefined ? {} : { optimizer: optimizer * by })
  };
}
