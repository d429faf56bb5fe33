import type { ISeating } from './cut-layers';
import { forwardGroups, type ILayoutShape } from './layout-space';
import type { IFullKind } from './split-request';

/** Kinds of devices from the fastest to the slowest and back, by memory, and by how well they do forward passes compared with others; each order once. */
export function kindOrders(devices: readonly IFullKind[]): number[][] {
  const by = (rank: (kind: IFullKind) => number): number[] =>
    devices.map((_, at) => at).sort((a, b) => rank(devices[a]!) - rank(devices[b]!) || a - b);
  return distinct([
    by(kind => kind.recompute + kind.backward),
    by(kind => -kind.recompute - kind.backward),
    by(kind => -Math.min(kind.memory, 1e30)),
    by(kind => kind.forward / (kind.recompute + kind.backward || 1)),
    by(kind => -kind.forward / (kind.recompute + kind.backward || 1))
  ]);
}

/**
 * Kinds of devices for the stages of a shape: blocks of alike ones, chosen and placed in a few orders.
 *
 * @param orders - Those of `kindOrders`.
 */
export function seatings(shape: ILayoutShape, orders: readonly (readonly number[])[]): ISeating[] {
  const { stages, tensor, forwardTensor, counts } = shape;
  const groups = forwardGroups(shape);
  return choices(orders, counts, tensor, stages).flatMap(chosen => {
    const left = counts.map((count, kind) => count - tensor * chosen[kind]!);
    const rows = placed(chosen, orders);
    return groups === 0
      ? rows.map(kinds => ({ kinds, forwardKinds: [] }))
      : choices(orders, left, forwardTensor, groups).flatMap(forward =>
          placed(forward, orders).flatMap(forwardKinds => rows.map(kinds => ({ kinds, forwardKinds })))
        );
  });
}

/** Groups of each kind: as many as there are of the first of an order, then of the second, until there are enough. */
function choices(
  orders: readonly (readonly number[])[],
  counts: readonly number[],
  each: number,
  groups: number
): number[][] {
  return distinct(
    orders.flatMap(order => {
      const taken = counts.map(() => 0);
      let rest = groups;
      for (const kind of order) {
        taken[kind] = Math.min(rest, Math.floor(counts[kind]! / each));
        rest -= taken[kind]!;
      }
      return rest > 0 ? [] : [taken];
    })
  );
}

function placed(chosen: readonly number[], orders: readonly (readonly number[])[]): number[][] {
  return distinct(orders.map(order => order.filter(kind => chosen[kind]! > 0))).map(order =>
    order.flatMap(kind => new Array<number>(chosen[kind]!).fill(kind))
  );
}

const distinct = (lists: readonly number[][]): number[][] => [
  ...new Map(lists.map(list => [list.join(), list])).values()
];
