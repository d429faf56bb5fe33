import { KINDS, operationName, type OperationTable } from './operation';
import { copyOf, virtualOf, type IPlanShape } from './plan-shape';

/** Operations as they ran, as columns of one length. Times are ms by one clock for all stages. */
export interface IMeasured {
  readonly stage: ArrayLike<number>;
  /** Model chunk of the stage, counted from 0; with two copies of the model, 0 is the first. */
  readonly chunk: ArrayLike<number>;
  /** F, B (whole, or the gradient of the input where a W follows), I, W; O is the optimizer's step, whose chunk and micro-batch say nothing. */
  readonly kind: ArrayLike<string>;
  readonly micro_batch: ArrayLike<number>;
  readonly begin: ArrayLike<number>;
  readonly end: ArrayLike<number>;
  /** Which step; all one step when absent. */
  readonly step?: ArrayLike<number>;
}

/** Where the rows of one step are, by operation: what is called B where a W follows is I. */
export class MeasuredStep {
  constructor(
    private readonly rows: IMeasured,
    readonly places: readonly number[],
    private readonly shape: IPlanShape
  ) {
    const split = new Set<string>();
    places.forEach(at => {
      if (rows.kind[at] === 'W') {
        split.add(operationName(this.virtual(at), 1, rows.micro_batch[at]!));
      }
    });
    for (const at of places) {
      const kind = KINDS.findIndex(each => each === rows.kind[at]);
      const name = kind < 0 ? '' : operationName(this.virtual(at), kind, rows.micro_batch[at]!);
      if (name !== '') {
        this.byName.set(
          split.has(name) ? operationName(this.virtual(at), 2, rows.micro_batch[at]!) : name,
          at
        );
      }
    }
  }

  /** Row of an operation, by its name; each once. */
  readonly byName = new Map<string, number>();

  virtual(at: number): number {
    return virtualOf(this.rows.stage[at]!, this.rows.chunk[at]!, this.shape);
  }

  /** Row of the operation on another virtual stage that one waits for; undefined where there is none. */
  sender(name: string): number | undefined {
    const [, virtual, kind, microBatch] = /^(\d+)([FBI])(\d+)$/.exec(name) ?? [];
    if (virtual === undefined) {
      return undefined;
    }
    const next = Number(virtual) + (kind === 'F' ? -1 : 1);
    const [first, end] = copyOf(Number(virtual), this.shape);
    if (next < first || next >= end) {
      return undefined;
    }
    return kind === 'F'
      ? this.byName.get(`${next}F${microBatch}`)
      : (this.byName.get(`${next}B${microBatch}`) ?? this.byName.get(`${next}I${microBatch}`));
  }
}

/** Rows of each step, in the order of the steps. */
export function measuredSteps(rows: IMeasured, shape: IPlanShape): MeasuredStep[] {
  const places = new Map<number, number[]>();
  for (let at = 0; at < rows.stage.length; at += 1) {
    const step = rows.step?.[at] ?? 0;
    const known = places.get(step);
    if (known === undefined) {
      places.set(step, [at]);
    } else {
      known.push(at);
    }
  }
  return [...places].sort(([a], [b]) => a - b).map(([, each]) => new MeasuredStep(rows, each, shape));
}

/** Row of each operation of a plan in a measured step; -1 where it was not measured. */
export function matchRows(table: OperationTable, step: MeasuredStep): Int32Array {
  return Int32Array.from({ length: table.count }, (_, at) => step.byName.get(table.name(at)) ?? -1);
}
