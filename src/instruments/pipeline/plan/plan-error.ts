/** Why there is no plan, or why one is wrong. Those from `missing` to `shape` are the codes of `protocol/fixtures/plans.json`. */
export type PlanErrorCode =
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

/** What a `PlanError` is about, where it is about something. */
export interface IPlanErrorDetails {
  readonly operation?: string;
  readonly stage?: number;
  readonly microBatch?: number;
  /** Dotted path of the request's member at fault. */
  readonly field?: string;
  /** Of a cycle: its operations, each of which waits for the one after it, or stands behind it on its stage; the last so for the first. */
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
