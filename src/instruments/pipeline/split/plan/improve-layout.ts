import type { SplitLayout } from '../protocol/split.generated';
import type { BestLayouts } from './best-layouts';
import { devicesOf } from './layout-shape';
import type { IFullSplitRequest } from './split-request';

/** Stages up to which each pair of them is tried; above only neighbours. */
const FEW_STAGES = 8;

type Stages = SplitLayout['stages'];
type Place = { readonly stage: number; readonly name: 'device' | 'forward_device' };

/**
 * Change a layout little by little as long as its step gets shorter: move a layer from one stage to another, let two stages change places, give a stage another kind of device, let two swap theirs.
 *
 * Yields after each change that was tried.
 *
 * @param recut - Cuts the layers anew for other devices.
 */
export function* improveLayout(
  start: SplitLayout,
  best: BestLayouts,
  request: IFullSplitRequest,
  recut: (layout: SplitLayout) => Iterable<readonly number[]>
): Generator<void> {
  let layout = start;
  let least = best.offer(layout);
  for (let isBetter = true; isBetter;) {
    isBetter = false;
    for (const stages of changes(layout.stages, request)) {
      const other = { ...layout, stages };
      if (devicesOf(other, request.devices) === null) {
        continue;
      }
      const isSeatedAnew = stages.some(
        ({ device, forward_device }, at) =>
          device !== layout.stages[at]!.device || forward_device !== layout.stages[at]!.forward_device
      );
      const cuts = isSeatedAnew ? recut(other) : [];
      const ways = [
        other,
        ...Array.from(cuts, layers => ({
          ...other,
          stages: stages.map((each, at) => ({ ...each, layers: layers[at]! }))
        }))
      ];
      for (const way of ways) {
        const found = best.offer(way);
        if (found < least * (1 - 1e-9)) {
          least = found;
          layout = way;
          isBetter = true;
        }
        yield;
      }
      if (isBetter) {
        break;
      }
    }
  }
}

function* changes(stages: Stages, { devices }: IFullSplitRequest): Generator<Stages> {
  const isNear = (a: number, b: number): boolean => stages.length <= FEW_STAGES || Math.abs(a - b) === 1;
  for (let from = 0; from < stages.length; from += 1) {
    for (let to = 0; to < stages.length && stages[from]!.layers > 1; to += 1) {
      if (from !== to && isNear(from, to)) {
        yield stages.map((each, at) =>
          at === from
            ? { ...each, layers: each.layers - 1 }
            : at === to
              ? { ...each, layers: each.layers + 1 }
              : each
        );
      }
    }
  }
  for (let from = 0; from < stages.length; from += 1) {
    for (let to = from + 1; to < stages.length; to += 1) {
      // Only the last stage may do without a forward process.
      const areAlike = (stages[from]!.forward_device === null) === (stages[to]!.forward_device === null);
      if (isNear(from, to) && areAlike) {
        yield stages.map((each, at) => (at === from ? stages[to]! : at === to ? stages[from]! : each));
      }
    }
  }
  const places = stages.flatMap(({ forward_device }, stage): Place[] => [
    { stage, name: 'device' },
    ...(typeof forward_device === 'number' ? [{ stage, name: 'forward_device' as const }] : [])
  ]);
  const kindAt = ({ stage, name }: Place): number => stages[stage]![name]!;
  const seat = (...seats: (readonly [Place, number])[]): Stages => {
    const changed = stages.map(each => ({ ...each }));
    for (const [{ stage, name }, kind] of seats) {
      changed[stage]![name] = kind;
    }
    return changed;
  };
  for (const [at, one] of places.entries()) {
    for (let kind = 0; kind < devices.length; kind += 1) {
      if (kind !== kindAt(one)) {
        yield seat([one, kind]);
      }
    }
    for (const other of places.slice(at + 1)) {
      if (kindAt(one) !== kindAt(other) && (one.stage === other.stage || isNear(one.stage, other.stage))) {
        yield seat([one, kindAt(other)], [other, kindAt(one)]);
      }
    }
  }
}
