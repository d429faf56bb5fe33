import type { SplitFamily, SplitLayout } from '../protocol/split.generated';

/** What one process of a replica does; of a tensor-parallel group its first. */
export interface ISplitLane {
  /** both: an ordinary process, which does forward and backward passes. */
  readonly role: 'backward' | 'both' | 'forward';
  readonly stage: number;
  /** Kind of device. */
  readonly device: number;
}

/** F: forward pass; R: forward pass that is done again, or in a backward process, for its backward pass; B: backward pass; O: gradients are summed over replicas and the optimizer takes its step; W: new weights come to a forward process. */
export type SplitKind = 'B' | 'F' | 'O' | 'R' | 'W';

/** The operations of one replica's step as columns of one length, lane after lane in their order; empty where there are more than 200,000, which nobody can draw. Times are ms from the step's begin. */
export interface ISplitOperations {
  readonly lane: readonly number[];
  readonly kind: readonly SplitKind[];
  /** -1 of O and W. */
  readonly microBatch: readonly number[];
  readonly begin: readonly number[];
  readonly end: readonly number[];
}

/** A layout and its simulated step. */
export interface ISplitPlanned {
  readonly layout: SplitLayout;
  /** Devices of each kind that it takes, a coordinator's among them. */
  readonly devices: readonly number[];
  /** ms from the begin of a step until the next can begin: with new weights where they are needed. */
  readonly stepMs: number;
  readonly lanes: readonly ISplitLane[];
  readonly operations: ISplitOperations;
  /** By lane: what a device holds at most, bytes. */
  readonly peakBytes: readonly number[];
  /** By how much the worst lane exceeds the memory of its device; 0 where none does. */
  readonly overMemoryBytes: number;
  /** Bytes that go between processes in a step, of all replicas. */
  readonly sentBytes: number;
}

/** What came of a family of layouts: the best of it, or why there is none. */
export type SplitOutcome =
  | ISplitPlanned
  | { readonly family: SplitFamily; readonly refused: { readonly code: string; readonly message: string } };

/** Whether a split is worth it. */
export interface ISplitVerdict {
  /** Whether the split's step is shorter by more than chance. */
  readonly isWorthIt: boolean;
  /** The best split, and the best of all others; null where there is none that fits in memory. */
  readonly split: ISplitPlanned | null;
  readonly other: ISplitPlanned | null;
  /** By how much the split's step is longer, %: negative where it is shorter. 95 % of what the times may be by their uncertainty lies between low and high. NaN where one of the two is lacking. */
  readonly percent: number;
  readonly lowPercent: number;
  readonly highPercent: number;
  /** What following the verdict costs on average where it is wrong, times how often it is, % of the step that would have been better. */
  readonly regretPercent: number;
}

/** What the planner found. */
export interface ISplitPlan {
  /** The best of each family in the order of `SplitFamily`; a layout of one's own before them. */
  readonly layouts: readonly SplitOutcome[];
  /** The shortest step of all that fit in memory. */
  readonly best: ISplitPlanned | null;
  readonly verdict: ISplitVerdict;
}
