import type { SplitLayout } from '../protocol/split.generated';
import { laneOrder } from './lane-order';
import { devicesOf, isApart } from './layout-shape';
import type { ISplitLane, ISplitPlanned, SplitKind } from './split-planned';
import type { SplitSimulation } from './split-simulation';

/** Operations of a step that are listed at most; more cannot be drawn. */
const MOST_LISTED = 200_000;

/** Simulate a layout with all of its operations. */
export function plannedSplit(simulation: SplitSimulation, layout: SplitLayout): ISplitPlanned {
  simulation.run(layout);
  const { stepMs, microBatches, request, bytes, forwardBytes, overBytes } = simulation;
  const lanes = lanesOf(layout);
  return {
    layout,
    devices: devicesOf(layout, request.devices) ?? [],
    stepMs,
    lanes,
    operations: operationsOf(simulation, layout, lanes),
    peakBytes: lanes.map(({ role, stage }) => (role === 'forward' ? forwardBytes : bytes)[stage]!),
    overMemoryBytes: overBytes,
    sentBytes: sentBytes(layout, microBatches, request)
  };
}

/** Forward processes by stage, then backward processes by stage; or those that do both. */
function lanesOf({ family, stages }: SplitLayout): ISplitLane[] {
  const own = stages.map(({ device }, stage): ISplitLane => ({
    role: isApart(family) ? 'backward' : 'both',
    stage,
    device
  }));
  const forward = stages.flatMap(({ forward_device }, stage): ISplitLane[] =>
    typeof forward_device === 'number' ? [{ role: 'forward', stage, device: forward_device }] : []
  );
  return [...forward, ...own];
}

function operationsOf(
  simulation: SplitSimulation,
  { family, stages }: SplitLayout,
  lanes: readonly ISplitLane[]
): ISplitPlanned['operations'] {
  const { microBatches, request } = simulation;
  const lane: number[] = [];
  const kind: SplitKind[] = [];
  const microBatch: number[] = [];
  const begin: number[] = [];
  const end: number[] = [];
  const enter = (at: number, what: SplitKind, which: number, from: number, to: number): void => {
    lane.push(at);
    kind.push(what);
    microBatch.push(which);
    begin.push(from);
    end.push(to);
  };
  const shape = { family, stages: stages.length, microBatches, ahead: request.ahead };
  const isListed = 3 * stages.length * microBatches <= MOST_LISTED;
  for (const [at, { role, stage }] of lanes.entries()) {
    if (!isListed) {
      break;
    }
    const takes = { F: simulation.forward, R: simulation.again, B: simulation.backward };
    const ends = { F: simulation.forwardEnd, R: simulation.againEnd, B: simulation.backwardEnd };
    for (const pass of laneOrder({ role, stage }, shape)) {
      const what = pass.kind;
      if (what === 'F' || what === 'R' || what === 'B') {
        const done = ends[what][stage * microBatches + pass.microBatch]!;
        enter(at, what, pass.microBatch, done - takes[what][stage]!, done);
      }
    }
    if (role !== 'forward') {
      enter(at, 'O', -1, simulation.sumBegin[stage]!, simulation.trained[stage]!);
    } else {
      const last = family === 'megafbd' ? 'O' : 'W';
      enter(at, last, -1, simulation.newBegin[stage]!, simulation.newEnd[stage]!);
    }
  }
  return { lane, kind, microBatch, begin, end };
}

/** Messages, sums of gradients over replicas and new weights; not what devices that share a stage say to each other. */
function sentBytes(
  layout: SplitLayout,
  microBatches: number,
  { message_bytes, weight_bytes, layers }: SplitSimulation['request']
): number {
  const { family, data, stages } = layout;
  const forwards = stages.filter(({ forward_device }) => typeof forward_device === 'number').length;
  const between = stages.length - 1;
  // Activations to forward and to backward processes, and gradients; of MegaFBD also those within a stage instead of the second.
  const messages =
    family === 'split'
      ? forwards - 1 + 2 * between
      : family === 'megafbd'
        ? 2 * between + stages.length
        : 2 * between;
  let layer = 0;
  let updated = 0;
  for (const stage of stages) {
    const end = layer + stage.layers;
    const share = layers.slice(layer, end).reduce((sum, each) => sum + each, 0);
    updated += typeof stage.forward_device === 'number' ? share : 0;
    layer = end;
  }
  const sums = family === 'megafbd' ? 2 * (2 * data - 1) : 2 * (data - 1);
  return (
    data * microBatches * messages * message_bytes +
    sums * weight_bytes +
    (family === 'split' ? data * updated * weight_bytes : 0)
  );
}
