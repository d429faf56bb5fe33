import type { IMomentsGroupsRequest, IMomentsIndex } from '../client/moments-api';
import type { IRunDetail } from '../client/runs-api';
import type { ViewOptions } from '../protocol/views.generated';
import { textsOf, type ILinesQuery } from '../client/run-reader';
import type { IPipelineRequest, IPipelineSteps } from '../instruments/pipeline/client/pipeline-api';
import type { ITimelineAnswer, ITimelineRequest } from '../instruments/timeline/client/timeline-api';
import type { IRunEvent } from '../store/run-events';
import type { IThinnedLines, ITensorQuery, ITensorRow, ITensorShape } from '../store/source';

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

/** A timeline that was asked for, and the answer: JSON text in which null stands for what is not a number. */
export interface IHeldTimeline {
  readonly request: ITimelineRequest;
  readonly text: string;
}

/** Measured steps of a pipeline that were asked for, and the answer. */
export interface IHeldPipeline {
  readonly request: IPipelineRequest;
  readonly answer: IPipelineSteps | null;
}

/** Most operations of measured steps that a file holds, but for those of one step. */
const PIPELINE_OPERATIONS = 20_000;

/** Cut measured steps to the newest ones that a file has room for. */
export function heldPipeline(answer: IPipelineSteps): IPipelineSteps {
  const { operations, steps } = answer;
  const at = operations.step.length - PIPELINE_OPERATIONS;
  // The first step whose operations are all behind the cut, or the newest.
  const newest = steps.at(-1)?.step ?? 0;
  const from =
    at > 0 ? Math.min((operations.step[at - 1] ?? newest) + 1, newest) : (steps[0]?.step ?? newest);
  const first = operations.step.findIndex(step => step >= from);
  const kept = steps.filter(({ step }) => step >= from);
  const cut = <T>(column: readonly T[]): readonly T[] => (first > 0 ? column.slice(first) : column);
  return {
    ...answer,
    steps: kept,
    left: answer.left + steps.length - kept.length,
    operations: {
      step: cut(operations.step),
      stage: cut(operations.stage),
      rank: cut(operations.rank),
      chunk: cut(operations.chunk),
      virtualStage: cut(operations.virtualStage),
      kind: cut(operations.kind),
      microBatch: cut(operations.microBatch),
      begin: cut(operations.begin),
      end: cut(operations.end)
    }
  };
}

/** Most columns of a timeline that a file holds. */
const TIMELINE_COLUMNS = 400;

/** Ask for a timeline as a file holds it: whole, and not finer than is seen. */
export function heldRequest({
  row: _,
  window: __,
  draft: ___,
  ...request
}: ITimelineRequest): ITimelineRequest {
  return { ...request, columns: Math.min(request.columns ?? Infinity, TIMELINE_COLUMNS) };
}

/** Write a timeline as a file holds it. */
export const timelineText = (answer: ITimelineAnswer | null): string => JSON.stringify(answer);

/** Read it again. */
export function readTimeline(text: string): ITimelineAnswer | null {
  return text === 'null'
    ? null
    : (JSON.parse(text, (_, value: unknown) => (value === null ? NaN : value)) as ITimelineAnswer);
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
  readonly timelines: readonly (Omit<IHeldTimeline, 'text'> & { readonly bytes: string })[];
  /** Measured steps of pipelines, as JSON texts of `IHeldPipeline`. */
  readonly pipelines: readonly string[];
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
