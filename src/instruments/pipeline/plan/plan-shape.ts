import type { Placement } from '../protocol/pipeline.generated';

/** Why a plan is absent or wrong. `missing` to `shape` are codes of `protocol/fixtures/plans.json`. */
type PlanErrorCode =
  /** An operation stands nowhere. */
  | 'missing'
  /** An operation stands twice, or a backward pass both whole and in parts. */
  | 'doubled'
  /** A word is no operation, or one of a virtual stage or micro-batch that this plan does not have. */
  | 'unknown'
  /** An operation stands on a stage that does not hold its virtual stage. */
  | 'misplaced'
  /** A backward pass stands before its forward pass, or a weight gradient before its input gradient. */
  | 'order'
  /** Operations wait for one another in a circle. */
  | 'cycle'
  /** Numbers of stages, chunks and micro-batches that do not go together. */
  | 'shape'
  /** A request is not what `PlanRequest` says; `field` names the member. */
  | 'request'
  /** A schedule does not take this many stages, chunks or micro-batches. */
  | 'fit'
  /** One micro-batch alone exceeds the memory limit. */
  | 'memory';

export interface IPlanErrorDetails {
  readonly operation?: string;
  readonly stage?: number;
  readonly microBatch?: number;
  /** Dotted path of the request's member at fault. */
  readonly field?: string;
  /** Of a cycle: operations that each wait for the next (the last for the first), or follow it on a stage. */
  readonly cycle?: readonly string[];
}

/** The one error class of the plan room. `message` says what was expected, what came, and what to try. */
export class PlanError extends Error {
  constructor(
    readonly code: PlanErrorCode,
    message: string,
    details: IPlanErrorDetails = {}
  ) {
    super(message);
    this.operation = details.operation ?? null;
    this.stage = details.stage ?? null;
    this.microBatch = details.microBatch ?? null;
    this.field = details.field;
    this.cycle = details.cycle ?? [];
  }

  override readonly name = 'PlanError';
  readonly operation: string | null;
  readonly stage: number | null;
  readonly microBatch: number | null;
  readonly field: string | undefined;
  readonly cycle: readonly string[];
}

/** What a plan's operations are counted by. */
export interface IPlanShape {
  readonly stages: number;
  readonly chunks: number;
  readonly micro_batches: number;
  readonly placement: Placement;
}

/** Most forward passes, or virtual stages times micro-batches, that are planned: a page has to hold them. */
export const MOST_PASSES = 1 << 19;

/** Virtual stages of a plan. */
export const virtualStages = ({ stages, chunks }: IPlanShape): number => stages * chunks;

export function stageOf(virtual: number, { stages, placement }: IPlanShape): number {
  const chunk = Math.floor(virtual / stages);
  const index = virtual % stages;
  const back = placement === 'v' ? chunk % 2 === 1 : placement === 'two_way' && chunk === 1;
  return back ? stages - 1 - index : index;
}

export function virtualOf(stage: number, chunk: number, { stages, placement }: IPlanShape): number {
  const back = placement === 'v' ? chunk % 2 === 1 : placement === 'two_way' && chunk === 1;
  return chunk * stages + (back ? stages - 1 - stage : stage);
}

/** First and last (exclusive) virtual stage of the copy of the model that a virtual stage belongs to. */
export function copyOf(virtual: number, shape: IPlanShape): [first: number, end: number] {
  if (shape.placement !== 'two_way') {
    return [0, virtualStages(shape)];
  }
  return virtual < shape.stages ? [0, shape.stages] : [shape.stages, 2 * shape.stages];
}

/** Whether a micro-batch passes a virtual stage: with two copies of the model, half passes each. */
export function passes(virtual: number, microBatch: number, shape: IPlanShape): boolean {
  return shape.placement !== 'two_way' || virtual < shape.stages === microBatch < shape.micro_batches / 2;
}

/** Micro-batches that pass each virtual stage. */
export function passesOf({ micro_batches, placement }: IPlanShape): number {
  return placement === 'two_way' ? micro_batches / 2 : micro_batches;
}

/**
 * Check that the numbers of a plan go together.
 * @throws PlanError `shape`.
 */
export function checkShape(shape: IPlanShape): void {
  const { chunks, micro_batches, placement } = shape;
  if (placement === 'two_way' && chunks !== 2) {
    throw new PlanError(
      'shape',
      `The placement two_way must have 2 chunks, one of each copy of the model, got ${chunks}.`
    );
  }
  if (placement === 'two_way' && micro_batches % 2 === 1) {
    throw new PlanError(
      'shape',
      `The placement two_way must have an even number of micro-batches, got ${micro_batches}. Try ${micro_batches + 1}.`
    );
  }
  const count = virtualStages(shape) * micro_batches;
  if (count > MOST_PASSES) {
    throw new PlanError(
      'shape',
      `Stages times chunks times micro-batches must be at most ${MOST_PASSES}, got ${count}. Try fewer micro-batches.`
    );
  }
}
