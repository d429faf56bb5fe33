import { checkPlan } from '../check-plan';
import { memoryChange, peakMemory, type IStageTimes } from '../memory';
import {
  FORWARD,
  INPUT_GRADIENT,
  WEIGHT_GRADIENT,
  OperationTable,
  stageOf,
  virtualStages,
  type IPlanShape
} from '../plan-shape';
import { Simulation } from '../simulation';

interface IState {
  readonly free: number[];
  readonly link: number[];
  readonly arrival: number[];
  /** When the last operation began: the next begins no sooner. */
  readonly last: number;
}

/**
 * The shortest step of all orders with backward passes in two parts: branch and bound over operations in the order of their begins, where of two ways to do the same operations
 * one that is nowhere later than the other is enough.
 *
 * @param upper - A step that is known; Infinity where none is.
 * @returns The shortest step, or `upper` where none is shorter.
 */
export function exhaustive(
  shape: IPlanShape,
  times: IStageTimes,
  memoryBytes: number,
  upper: number
): number {
  const { stages, micro_batches } = shape;
  const count = virtualStages(shape);
  const lengths = new Array<number>(stages).fill(3 * shape.chunks * micro_batches);
  const table = new OperationTable(shape, lengths);
  const next = Array.from(table.starts);
  for (let virtual = 0; virtual < count; virtual += 1) {
    for (let microBatch = 0; microBatch < micro_batches; microBatch += 1) {
      for (const kind of [FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT]) {
        table.enter(next[stageOf(virtual, shape)]!++, kind, virtual, microBatch);
      }
    }
  }
  table.connect();
  const total = table.count;
  const duration = Array.from(
    { length: total },
    (_, at) => times.duration[table.kind[at]! * count + table.virtual[at]!]!
  );
  const change = Array.from({ length: total }, (_, at) => memoryChange(table, times, at));
  const links = table.links.map(link => times.link(link));
  const local = Array.from({ length: total }, (_, at) => (table.kind[at] === FORWARD ? -1 : at - 1));
  const seen = new Map<string, IState[]>();
  let best = upper;
  const done = new Array<boolean>(total).fill(false);
  const rest = Array.from(times.optimizer);
  duration.forEach((each, at) => (rest[table.stage(at)]! += each));
  const held = Array.from(times.weights);
  // What has to follow an operation, on whatever stage: a bound.
  const tail = new Array<number>(total).fill(-1);
  const tailOf = (at: number): number => {
    if (tail[at]! < 0) {
      const fed = table.feeds[at]!;
      const link =
        table.route[at]! < 0 ? 0 : links[table.route[at]!]!.send + links[table.route[at]!]!.latency;
      const own = table.kind[at] === WEIGHT_GRADIENT ? times.optimizer[table.stage(at)]! : tailOf(at + 1);
      tail[at] = duration[at]! + Math.max(own, fed < 0 ? 0 : link + tailOf(fed));
    }
    return tail[at]!;
  };

  const visit = (state: IState, left: number): void => {
    if (left === 0) {
      best = Math.min(best, Math.max(...state.free.map((time, stage) => time + times.optimizer[stage]!)));
      return;
    }
    if (state.free.some((time, stage) => time + rest[stage]! >= best - 1e-9)) {
      return;
    }
    const key = done.map(Number).join('');
    const others = seen.get(key) ?? [];
    const isNoLater = (a: IState): boolean =>
      a.free.every((time, at) => time <= state.free[at]!) &&
      a.link.every((time, at) => time <= state.link[at]!) &&
      a.arrival.every((time, at) => time <= state.arrival[at]!) &&
      a.last <= state.last;
    if (others.some(isNoLater)) {
      return;
    }
    others.push(state);
    seen.set(key, others);
    const ready: { at: number; begin: number }[] = [];
    for (let at = 0; at < total; at += 1) {
      if (
        done[at]! ||
        (local[at]! >= 0 && !done[local[at]!]!) ||
        (table.waits[at]! >= 0 && !done[table.waits[at]!]!)
      ) {
        continue;
      }
      const stage = table.stage(at);
      if (table.kind[at] === FORWARD && held[stage]! + change[at]! > memoryBytes * (1 + 1e-9)) {
        continue;
      }
      const begin = Math.max(state.free[stage]!, table.waits[at]! < 0 ? 0 : state.arrival[at]!);
      if (begin + tailOf(at) >= best - 1e-9) {
        return;
      }
      ready.push({ at, begin });
    }
    ready.sort((a, b) => a.begin - b.begin);
    for (const { at, begin } of ready) {
      if (begin < state.last) {
        continue;
      }
      const stage = table.stage(at);
      const end = begin + duration[at]!;
      const free = [...state.free];
      const link = [...state.link];
      const arrival = [...state.arrival];
      free[stage] = end;
      const fed = table.feeds[at]!;
      const route = table.route[at]!;
      if (fed >= 0) {
        const left = route < 0 ? end : (link[route] = Math.max(link[route]!, end) + links[route]!.send);
        arrival[fed] = left + (route < 0 ? 0 : links[route]!.latency);
      }
      arrival[at] = 0;
      done[at] = true;
      held[stage]! += change[at]!;
      rest[stage]! -= duration[at]!;
      visit({ free, link, arrival, last: begin }, left - 1);
      rest[stage]! += duration[at]!;
      held[stage]! -= change[at]!;
      done[at] = false;
    }
  };
  visit(
    {
      free: new Array<number>(stages).fill(0),
      link: links.map(() => 0),
      arrival: new Array<number>(total).fill(0),
      last: 0
    },
    total
  );
  return best;
}

/** The shortest step of all orders, each of them simulated: one chunk and two micro-batches, or it takes for ever. */
export function enumerated(shape: IPlanShape, times: IStageTimes, memoryBytes: number): number {
  const { stages, micro_batches } = shape;
  const orders = (stage: number): string[] => {
    const all: string[] = [];
    const next = new Array<number>(micro_batches).fill(0);
    const extend = (words: readonly string[]): void => {
      if (words.length === 3 * micro_batches) {
        all.push(words.join(' '));
      }
      next.forEach((done, microBatch) => {
        if (done < 3) {
          next[microBatch]! += 1;
          extend([...words, `${stage}${'FIW'[done]}${microBatch}`]);
          next[microBatch]! -= 1;
        }
      });
    };
    extend([]);
    return all;
  };
  let best = Infinity;
  const choose = (chosen: readonly string[]): void => {
    if (chosen.length < stages) {
      orders(chosen.length).forEach(order => choose([...chosen, order]));
      return;
    }
    try {
      const table = checkPlan({ schedule: 'any', ...shape, order: [...chosen] });
      if (peakMemory(table, times).every(peak => peak <= memoryBytes * (1 + 1e-9))) {
        best = Math.min(best, new Simulation(table, times).run());
      }
    } catch {
      // A circle.
    }
  };
  choose([]);
  return best;
}
