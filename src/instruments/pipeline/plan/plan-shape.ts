import type { Placement } from '../protocol/pipeline.generated';
import { PlanError } from './plan-error';

/** What a plan's operations are counted by. */
export interface IPlanShape {
  /** Pipeline stages P. */
  readonly stages: number;
  /** Model chunks V of a stage. */
  readonly chunks: number;
  /** Micro-batches M. */
  readonly micro_batches: number;
  readonly placement: Placement;
}

/** More forward passes than this, or virtual stages times micro-batches, are not planned: a page has to hold them all. */
export const MOST_PASSES = 1 << 19;

/** Virtual stages of a plan. */
export function virtualStages({ stages, chunks }: IPlanShape): number {
  return stages * chunks;
}

/** The stage that holds a virtual stage. */
export function stageOf(virtual: number, { stages, placement }: IPlanShape): number {
  const chunk = Math.floor(virtual / stages);
  const place = virtual % stages;
  const back = placement === 'v' ? chunk % 2 === 1 : placement === 'two_way' && chunk === 1;
  return back ? stages - 1 - place : place;
}

/** The virtual stage of a stage's chunk. */
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

/** Whether a micro-batch passes a virtual stage: with two copies of the model, the first half passes the first. */
export function passes(virtual: number, microBatch: number, shape: IPlanShape): boolean {
  return shape.placement !== 'two_way' || virtual < shape.stages === microBatch < shape.micro_batches / 2;
}

/** Micro-batches that pass each virtual stage. */
export function passesOf({ micro_batches, placement }: IPlanShape): number {
  return placement === 'two_way' ? micro_batches / 2 : micro_batches;
}

/**
 * Check that the numbers of a plan go together.
 *
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
