import type { DeviceKind, SplitLayout, SplitRequest } from '../protocol/split.generated';
import type { IMeasuredLane, IMeasuredSplit } from './measured-split';

/** What is planned for where nothing was measured: devices of two kinds, one four times as fast. */
const USUAL: SplitRequest = {
  devices: [
    { name: 'fast', count: 4, forward: 4 },
    { name: 'slow', count: 4, forward: 16 }
  ],
  micro_batches: 8
};

/**
 * Fill up a partial request with what was measured of a run: kinds of devices with the times of the whole
 * model, what its stages cost as layers, its micro-batches, its latency, and its layout as one of one's own.
 * What a forward process was never seen to do (recompute, go back) takes as many times longer as its forward
 * passes take compared with those of backward processes.
 *
 * A layout is only taken over where the request changes none of what it belongs to. Whether all go together
 * the planner checks.
 */
export function splitRequestOf(
  request: Partial<SplitRequest>,
  measured: IMeasuredSplit | null
): SplitRequest {
  if (measured === null) {
    return { ...USUAL, ...request };
  }
  const { ahead, lanes, microBatches, replicas, latencyMs, isSplit } = measured;
  const trained = lanes.filter(({ role }) => role !== 'forward');
  const forwards = lanes.filter(({ role }) => role === 'forward');
  const costs = trained.map(({ recomputeMs, backwardMs }) => (recomputeMs || 0) + (backwardMs || 0));
  const isOwn = [request.devices, request.layers, request.micro_batches].every(each => each === undefined);
  const own = {
    devices: isSplit ? kindsOf(forwards, trained, measured) : [kindOf('devices', trained, replicas)],
    layers: costs.every(cost => cost > 0) ? costs : costs.length,
    micro_batches: microBatches * replicas,
    latency: latencyMs,
    ahead
  };
  return { ...own, ...(isOwn ? { layout: layoutOfRun(measured) } : {}), ...request };
}

function kindOf(name: string, lanes: readonly IMeasuredLane[], replicas: number): DeviceKind {
  const recompute = total(lanes, 'recomputeMs');
  return {
    name,
    count: lanes.length * replicas,
    forward: recompute,
    recompute,
    backward: total(lanes, 'backwardMs'),
    optimizer: total(lanes, 'optimizerMs')
  };
}

function kindsOf(
  forwards: readonly IMeasuredLane[],
  backwards: readonly IMeasuredLane[],
  { replicas }: IMeasuredSplit
): DeviceKind[] {
  const kind = kindOf('backward processes', backwards, replicas);
  // The last stage may have none: compare the stages that have both, and take the rest to be alike.
  const both = total(backwards.slice(0, forwards.length), 'recomputeMs');
  const slower = both > 0 ? total(forwards, 'forwardMs') / both : 1;
  const scaled = (ms: number | undefined): number => (ms ?? 0) * slower;
  return [
    {
      name: 'forward processes',
      count: forwards.length * replicas,
      forward: scaled(kind.recompute),
      recompute: scaled(kind.recompute),
      backward: scaled(kind.backward),
      optimizer: scaled(kind.optimizer)
    },
    kind
  ];
}

/** Sum of what was measured. */
function total(
  lanes: readonly IMeasuredLane[],
  name: 'recomputeMs' | 'backwardMs' | 'forwardMs' | 'optimizerMs'
): number {
  return lanes.reduce((sum, lane) => sum + (lane[name] || 0), 0);
}

function layoutOfRun({ isSplit, stages, lastForward, replicas }: IMeasuredSplit): SplitLayout {
  return {
    family: isSplit ? 'split' : stages > 1 ? 'pipeline' : 'ordinary',
    data: replicas,
    tensor: 1,
    stages: Array.from({ length: stages }, (_, stage) => ({
      device: isSplit ? 1 : 0,
      layers: 1,
      ...(isSplit ? { forward_device: stage < stages - 1 || lastForward ? 0 : null } : {})
    }))
  };
}
