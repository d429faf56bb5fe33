// Generated from protocol/requests.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type {
  MeasuredTensors,
  MomentFilter,
  MomentGroupBy,
  MomentStatistic,
  PassChoice,
  PhaseChoice,
  PositionRanges,
  SmoothingPoints,
  StatisticsOptions,
  StepRange,
  TensorStatistic,
  TrendOptions
} from './views.generated';

/**
 * What is asked of the rows of a run. One object goes unchanged from who asks to who answers: a view, the page's store, the Jupyter server's endpoints, the engine's pipe, a report's file.
 */
export type RunRequest =
  | StreamRequest
  | TrendRequest
  | ScalarsRequest
  | MomentRowsRequest
  | MomentGroupsRequest
  | TimelineRequest
  | PipelineStepsRequest
  | AlarmCountRequest
  | StatisticsRequest
  | CoursesRequest;
/**
 * One rank, or of each layer the lowest rank that has it.
 */
export type RequestRank = number | 'lowest';
/**
 * Numbers of layers; all when absent.
 */
export type RequestLayers = readonly number[];
/**
 * First and last step, both included; an open end is 2^53 - 1. All steps when absent.
 *
 * @minItems 2
 * @maxItems 2
 */
export type RequestSteps = readonly [number, number];
/**
 * About how many points of a line to return, with the extremes of every stretch; every one when absent.
 */
export type RequestPoints = number;

/**
 * Rows of a stream. Absent members match everything; a stream takes those that the ask of its policy names.
 */
export interface StreamRequest {
  /**
   * Trace point by name.
   */
  readonly flag?: string;
  /**
   * Named part (q, k, v …).
   */
  readonly part?: string;
  readonly phase?: PhaseChoice;
  readonly pass?: PassChoice;
  readonly rank?: RequestRank;
  readonly layers?: RequestLayers;
  readonly steps?: RequestSteps;
  /**
   * Of each layer only the newest row, up to the last step, whose compression error was measured.
   */
  readonly measured?: boolean;
  /**
   * Most blocks along an axis of Peaks rows; compressor then names the blocks they were made of.
   */
  readonly peaks?: number;
  /**
   * Columns that the stream's policy lets be asked for as equal, and what they must equal.
   */
  readonly where?: {
    [k: string]: string | number;
  };

  /**
   * Only these columns of each row, and the step; all when absent.
   */
  readonly columns?: readonly string[];
  /**
   * Bytes that the answer may have; steps are thinned out to fit.
   */
  readonly limit_bytes?: number;
}

/**
 * A statistic of the tensors of a flag over steps, as a line for each layer.
 */
export interface TrendRequest {
  /**
   * Trace point by name.
   */
  readonly flag: string;
  /**
   * Named part (q, k, v …).
   */
  readonly part?: string;
  readonly phase?: PhaseChoice;
  readonly pass?: PassChoice;
  readonly rank?: RequestRank;
  readonly layers?: RequestLayers;
  readonly steps?: RequestSteps;
  readonly statistic: TensorStatistic;
  readonly selection?: TensorSelection;
  readonly points?: RequestPoints;
}

/**
 * Which of the values that a compressor kept enter a statistic, and what is asked of their spread. Absent: all, and nothing.
 */
export interface TensorSelection {
  /**
   * Names of the axes of one sample, as hello has them: ['position', 'feature'].
   */
  readonly axes: readonly string[];
  readonly positions: PositionRanges;
  /**
   * Vector of a projection.
   */
  readonly vector: number;
  readonly interval: Required<TrendOptions>['interval'];
}

/**
 * Scalars over steps, as a line for each name.
 */
export interface ScalarsRequest {
  /**
   * All when absent.
   */
  readonly names?: readonly string[] | null;
  readonly steps?: RequestSteps;
  readonly points?: RequestPoints;
}

/**
 * Rows of the stream moments.
 */
export interface MomentRowsRequest {
  readonly stats: readonly MeasuredTensors[];
  readonly where?: Readonly<MomentFilter>;
  readonly steps?: Readonly<StepRange>;
  /**
   * With more rows than this that match, the answer is the error too-large.
   */
  readonly limit_rows?: number;
}

/**
 * Groups of the stream moments. Members that the view moments has mean here what they mean there.
 */
export interface MomentGroupsRequest {
  readonly stat: MeasuredTensors;
  readonly statistic: MomentStatistic;
  /**
   * Columns that make a group; none is the total.
   */
  readonly by: readonly MomentGroupBy[number][];
  readonly pattern?: Required<StatisticsOptions>['pattern'];
  readonly where?: Readonly<MomentFilter>;
  readonly steps?: Readonly<StepRange>;
  /**
   * At most about so many steps a group; every minimum, maximum and non-finite step stays.
   */
  readonly points?: number;
  /**
   * At most so many groups: those of the greatest magnitudes.
   */
  readonly series?: number;
  readonly ratio?: Required<StatisticsOptions>['ratio'];
  /**
   * Let inputs and outputs of modules enter one group; refused without it.
   */
  readonly mixed?: boolean;
  readonly show?: Required<StatisticsOptions>['show'];
  readonly smoothing?: SmoothingPoints;
}

/**
 * What of a timeline is drawn; what is absent is chosen by who answers.
 */
export interface TimelineRequest {
  readonly first?: number;
  readonly last?: number;
  /**
   * ms since the first of the steps; the second is larger.
   *
   * @minItems 2
   * @maxItems 2
   */
  readonly window?: readonly [number, number];
  /**
   * Pixels across.
   */
  readonly columns?: number;
  /**
   * 'all' or ranges such as '0-3,7'.
   */
  readonly ranks?: string;
  /**
   * The span whose dependencies are wanted.
   */
  readonly row?: number;
  /**
   * Whether the critical path is wanted.
   */
  readonly path?: boolean;
  /**
   * What names of spans must have in them.
   */
  readonly find?: string;
  /**
   * Number of the first that is wanted of those that are found, from 0.
   */
  readonly found_from?: number;
  /**
   * The window in ms whose spans are summed by name; the second is larger.
   *
   * @minItems 2
   * @maxItems 2
   */
  readonly sums?: readonly [number, number];
  /**
   * Ranks whose spans are summed: 'all' or ranges such as '0-3,7'.
   */
  readonly sums_ranks?: string;
  /**
   * Whether lanes will do, where a verdict takes seconds.
   */
  readonly draft?: boolean;
}

/**
 * Which steps of a pipeline, as they were measured; the newest 10 whole ones when absent.
 */
export interface PipelineStepsRequest {
  readonly first?: number;
  readonly last?: number;
  /**
   * Which pipeline, from 0: the how-manieth rank of each stage.
   */
  readonly replica?: number;
}

/**
 * How many alarms other settings of the rules would have given.
 */
export interface AlarmCountRequest {
  /**
   * Settings of the instrument monitor.
   */
  readonly settings: Record<string, unknown>;
}

/**
 * A tree of raw-moment files to open.
 */
export interface StatisticsRequest {
  /**
   * Below the server's root.
   */
  readonly path: string;
}

/**
 * One scalar of many recorded runs: quantiles over them by step, and who is far from them.
 */
export interface CoursesRequest {
  /**
   * The scalar; a loss, or the first there is, when absent.
   */
  readonly name?: string;
  /**
   * How distance is measured: in the scalar's own unit, or in decades. Linear when absent.
   */
  readonly scale?: 'linear' | 'log';
  /**
   * Ids of runs; all recorded ones when absent.
   */
  readonly runs?: readonly string[];
  /**
   * Of which the quantiles are answered too, each by itself.
   */
  readonly groups?: readonly CoursesGroup[];
}

/**
 * Some of the runs of a request, such as those of one setting.
 */
export interface CoursesGroup {
  readonly name: string;
  /**
   * Their places in `runs` of the request, from 0.
   */
  readonly runs: readonly number[];
}
