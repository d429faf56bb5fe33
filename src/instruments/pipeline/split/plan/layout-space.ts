import type { SplitFamily, SplitLayout } from '../protocol/split.generated';
import { isApart } from './layout-shape';
import { MOST_PASSES, type IFullSplitRequest } from './split-request';

/** Numbers of stages that are all tried; above only each so manieth. */
const FINE_STAGES = 64;
const COARSE = 16;

/** What layouts have in common that differ only in their kinds of devices and in where layers are cut. */
export interface ILayoutShape {
  readonly family: SplitFamily;
  readonly data: number;
  readonly tensor: number;
  readonly forwardTensor: number;
  readonly stages: number;
  readonly lastForward: boolean;
  /** Of each kind: devices that one replica may take. */
  readonly counts: readonly number[];
  /** Devices that one replica may take of all kinds. */
  readonly most: number;
}

/** The shapes of a family for which there may be devices enough, those with few replicas first. */
export function shapesOf(family: SplitFamily, request: IFullSplitRequest): ILayoutShape[] {
  const { devices, layers, micro_batches, tensors } = request;
  const isSplit = family === 'split';
  const apart = isApart(family);
  const isWhole = family === 'ordinary' || family === 'recompute';
  const all = devices.reduce((sum, { count }) => sum + count, 0) - (family === 'megafbd' ? 1 : 0);
  const shapes: ILayoutShape[] = [];
  for (let data = 1; data <= Math.min(all, micro_batches); data += 1) {
    if (micro_batches % data > 0) {
      continue;
    }
    const counts = devices.map(({ count }) => Math.floor(count / data));
    const most = Math.floor(all / data);
    for (const tensor of tensors) {
      const forwardTensors = isSplit ? tensors.filter(each => each <= tensor) : [apart ? 1 : tensor];
      for (const forwardTensor of forwardTensors) {
        const each = apart ? tensor + forwardTensor : tensor;
        const first = apart || isWhole ? 1 : 2;
        const last = isWhole ? 1 : Math.min(layers.length, MOST_PASSES / (micro_batches / data));
        for (let stages = first; stages <= last; stages += stages < FINE_STAGES ? 1 : COARSE) {
          for (const lastForward of isSplit && stages > 1 ? [false, true] : [apart]) {
            if (stages * each - (isSplit && !lastForward ? forwardTensor : 0) <= most) {
              shapes.push({ family, data, tensor, forwardTensor, stages, lastForward, counts, most });
            }
          }
        }
      }
    }
  }
  return shapes;
}

export function forwardGroups({ family, stages, lastForward }: ILayoutShape): number {
  return isApart(family) ? stages - (lastForward ? 0 : 1) : 0;
}

export function layoutsOf(shape: ILayoutShape, layers: number): number {
  let count = shape.counts.length ** (shape.stages + forwardGroups(shape));
  // Ways to cut so many layers into so many stages.
  for (let cut = 1; cut < shape.stages && count < 1e9; cut += 1) {
    count *= (layers - cut) / cut;
  }
  return count;
}

export function layoutOf(
  { family, data, tensor, forwardTensor }: ILayoutShape,
  kinds: readonly number[],
  forwardKinds: readonly number[],
  layers: readonly number[]
): SplitLayout {
  return {
    family,
    data,
    tensor,
    ...(family === 'split' ? { forward_tensor: forwardTensor } : {}),
    stages: kinds.map((device, stage) => ({
      device,
      layers: layers[stage]!,
      ...(isApart(family) ? { forward_device: forwardKinds[stage] ?? null } : {})
    }))
  };
}

/** All layouts of a shape. One object, which changes. */
export function* everyLayout(shape: ILayoutShape, layers: number): Generator<SplitLayout> {
  const { stages, tensor, forwardTensor, counts } = shape;
  const layout = layoutOf(shape, new Array<number>(stages).fill(0), [], []);
  const left = [...counts];
  const groups = stages + forwardGroups(shape);
  function* cut(stage: number, rest: number): Generator<SplitLayout> {
    const own = layout.stages[stage]!;
    if (stage === stages - 1) {
      own.layers = rest;
      yield layout;
      return;
    }
    for (own.layers = 1; own.layers <= rest - (stages - 1 - stage); own.layers += 1) {
      yield* cut(stage + 1, rest - own.layers);
    }
  }
  function* seat(group: number): Generator<SplitLayout> {
    if (group === groups) {
      yield* cut(0, layers);
      return;
    }
    const takes = group < stages ? tensor : forwardTensor;
    for (let kind = 0; kind < left.length; kind += 1) {
      if (left[kind]! >= takes) {
        left[kind]! -= takes;
        if (group < stages) {
          layout.stages[group]!.device = kind;
        } else {
          layout.stages[group - stages]!.forward_device = kind;
        }
        yield* seat(group + 1);
        left[kind]! += takes;
      }
    }
  }
  yield* seat(0);
}
