import type { OperationTable } from './operation-table';

/**
 * Look for operations that wait for one another in a circle.
 *
 * Kahn's algorithm over two kinds of edges: the operation before on the same stage, and the one whose message is waited for.
 *
 * @param proof - Filled with an order in which each operation comes after all that it waits for, where there is one.
 * @returns null where every operation can run; otherwise one circle, from the lowest stage on: each operation waits for the one after it, or stands behind it on its stage, and the last so for the first.
 */
export function findCycle(table: OperationTable, proof: number[] = []): number[] | null {
  const { starts, waits, feeds, shape } = table;
  const next = starts.slice(0, shape.stages);
  const done = new Uint8Array(table.count);
  const work = Array.from(next, (_, stage) => shape.stages - 1 - stage);
  while (work.length > 0) {
    const stage = work.pop()!;
    for (let at = next[stage]!; at < starts[stage + 1]!; at = ++next[stage]!) {
      if (waits[at]! >= 0 && done[waits[at]!] === 0) {
        break;
      }
      done[at] = 1;
      proof.push(at);
      const fed = feeds[at]!;
      const other = fed < 0 ? stage : table.stage(fed);
      if (other !== stage && next[other] === fed) {
        work.push(other);
      }
    }
  }
  const stuck = next.findIndex((at, stage) => at < starts[stage + 1]!);
  if (stuck < 0) {
    return null;
  }
  // Each stuck stage waits for an operation of a stuck stage: following them ends in a circle.
  const path: number[] = [];
  const seen = new Map<number, number>();
  for (let stage = stuck; ;) {
    const from = seen.get(stage);
    if (from !== undefined) {
      const circle = path.slice(from);
      const lowest = circle.reduce(
        (least, at, place) => (table.stage(at) < table.stage(circle[least]!) ? place : least),
        0
      );
      return [...circle.slice(lowest), ...circle.slice(0, lowest)].flatMap((at, place, all) => {
        const sender = waits[at]!;
        return sender === all[(place + 1) % all.length] ? [at] : [at, sender];
      });
    }
    seen.set(stage, path.length);
    path.push(next[stage]!);
    stage = table.stage(waits[next[stage]!]!);
  }
}
