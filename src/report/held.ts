import type { IMomentsGroupsRequest, IMomentsIndex } from '../client/moments-api';
import type { IRunDetail } from '../client/runs-api';
import type { ViewOptions } from '../protocol/views.generated';
import type { ITensorQuery, ITensorRow, ITensorShape } from '../store/source';

/** A question for tensors that the views of a report asked. */
export interface IAsked {
  readonly query: ITensorQuery;
  /** Every how-manieth step the answer holds. */
  readonly sampledEvery: number;
}

/** Rows of a run that a report's file holds. */
export interface IHeldRows {
  readonly rows: readonly ITensorRow[];
  readonly asked: readonly IAsked[];
  /** What the run had of each flag that was asked for. */
  readonly shapes: Readonly<Record<string, ITensorShape>>;
}

/** What was answered to a question for groups. */
export interface IHeldGroups {
  readonly request: IMomentsGroupsRequest;
  readonly groups: number;
  readonly steps: number;
  readonly bytes: Uint8Array;
}

/** Statistics of a run that a report's file holds. */
export interface IHeldMoments {
  readonly index: IMomentsIndex;
  /** Every row of a stat, as an Arrow IPC stream. */
  readonly rows: ReadonlyMap<string, Uint8Array>;
  readonly groups: readonly IHeldGroups[];
}

/** A run as the page carries it: what is text here is packed. */
export interface IPageRun {
  readonly id: string;
  readonly detail: IRunDetail;
  /** Rows of the stream `tensors`, as an Arrow IPC stream; what is left out of a row is in `sums`. */
  readonly tensors: string;
  /** Ten columns of float64: see `tensor-rows.ts` here. */
  readonly sums: string;
  readonly tensorShapes: readonly (readonly number[])[];
  readonly asked: readonly IAsked[];
  readonly shapes: Readonly<Record<string, ITensorShape>>;
  /** Rows of the stream `scalars`, as an Arrow IPC stream. */
  readonly scalars: string;
  /** Points of scalars that were left out. */
  readonly thinned: number;
  readonly moments: {
    readonly index: IMomentsIndex;
    readonly rows: Readonly<Record<string, string>>;
    readonly groups: readonly (Omit<IHeldGroups, 'bytes'> & { readonly bytes: string })[];
  } | null;
}

/** All that a page carries for its live views. */
export interface IPageData {
  readonly format: 2;
  readonly views: readonly ViewOptions[];
  /** The run of the report first, then those that it is compared with. */
  readonly runs: readonly IPageRun[];
}
