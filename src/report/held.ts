import type { IMomentsGroupsRequest, IMomentsIndex } from '../client/moments-api';
import type { IRunDetail } from '../client/runs-api';
import type { ViewOptions } from '../protocol/views.generated';
import { textsOf, type ILinesQuery } from '../client/run-reader';
import type { IRunEvent } from '../store/run-events';
import type { IThinnedLines, ITensorQuery, ITensorRow, ITensorShape } from '../store/tensor-data';

/** A question for tensors that the views of a report asked. */
export interface IAsked {
  readonly query: ITensorQuery;
  /** Every how-manieth step the answer holds. */
  readonly sampledEvery: number;
  /** Set where of long lines only the extremes are held. */
  readonly thinned?: IThinnedLines;
}

/** Lines that were asked for, and the answer as it came. */
export interface IHeldLines {
  readonly query: ILinesQuery;
  readonly bytes: Uint8Array;
}

/** A question of an instrument that was asked, and the answer as JSON text. */
export interface IHeldAnswer {
  readonly question: string;
  /** As `key` of the question's held form. */
  readonly key: string;
  readonly text: string;
}

/** What tells questions for lines apart, whatever their steps and points. */
export function lineKey(query: ILinesQuery): string {
  const { first: _, last: __, points: ___, ...rest } = textsOf(query);
  return JSON.stringify(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** An event as a page carries it: JSON has no infinite number, so what goes on has no last step. */
export type PageEvent = Omit<IRunEvent, 'last'> & { readonly last: number | null };

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
  /** Trends of more rows than are held. */
  readonly trends: readonly (Omit<IHeldLines, 'bytes'> & { readonly bytes: string })[];
  /** What instruments asked of the recording. */
  readonly answers: readonly (Omit<IHeldAnswer, 'text'> & { readonly bytes: string })[];
  /** Rows of the stream `scalars`, as an Arrow IPC stream. */
  readonly scalars: string;
  /** What happened to the run. */
  readonly events: readonly PageEvent[];
  /** Rows of other streams by name, as Arrow IPC streams. */
  readonly tables: Readonly<Record<string, string>>;
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
