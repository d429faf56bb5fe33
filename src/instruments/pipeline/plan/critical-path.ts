import type { Simulation } from './simulation';

/** A stretch of the critical path: what the step's length consists of. */
export type PathPart =
  | {
      readonly what: 'operation';
      readonly operation: string;
      readonly stage: number;
      readonly begin: number;
      readonly end: number;
    }
  /** From the end of the operation that sends to the arrival, with the wait for messages before it. */
  | {
      readonly what: 'message';
      readonly operation: string;
      readonly from: number;
      readonly to: number;
      readonly begin: number;
      readonly end: number;
    }
  | { readonly what: 'optimizer'; readonly stage: number; readonly begin: number; readonly end: number };

/**
 * What the step waits for, from its begin to its end without a gap: shortening anything else does not shorten the step.
 *
 * Walks back from the stage that is done last: from each operation to the one before it on its stage, where the stage was busy until then, otherwise along the message
 * that it waited for. Where both ended at the same time it stays on the stage. A message's `operation` is the one that sends it.
 *
 * @param simulation - After `run`, with its order unchanged since the plan was checked.
 */
export function criticalPath({ table, begin, end, arrival, free, optimizer }: Simulation): PathPart[] {
  const path: PathPart[] = [];
  const last = free.reduce((latest, time, stage) => (time > free[latest]! ? stage : latest), 0);
  let at = table.starts[last + 1]! - 1;
  if (optimizer[last]! > 0) {
    path.push({ what: 'optimizer', stage: last, begin: end[at]!, end: free[last]! });
  }
  for (;;) {
    const stage = table.stage(at);
    path.push({ what: 'operation', operation: table.name(at), stage, begin: begin[at]!, end: end[at]! });
    const before = at > table.starts[stage]! ? at - 1 : -1;
    const busy = before >= 0 ? end[before]! : 0;
    const sender = table.waits[at]!;
    if (begin[at]! <= busy || sender < 0) {
      if (before < 0) {
        return path.reverse();
      }
      at = before;
      continue;
    }
    if (arrival[at]! > end[sender]!) {
      path.push({
        what: 'message',
        operation: table.name(sender),
        from: table.stage(sender),
        to: stage,
        begin: end[sender]!,
        end: arrival[at]!
      });
    }
    at = sender;
  }
}
