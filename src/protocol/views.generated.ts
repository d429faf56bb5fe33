// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/**
 * Options of a view, and all that is known of a view before its code is loaded. The same options object is the Python widget's arguments, the saved state of a tab and a report's recipe.
 */
export type ViewOptions =
  | OverviewOptions
  | HeatmapOptions
  | TrendOptions
  | ScalarsOptions
  | HistoryOptions
  | DistributionOptions
  | StatisticsOptions
  | HealthOptions
  | TimelineOptions
  | TokensOptions
  | AttentionOptions
  | ProjectionOptions
  | LensOptions
  | EffectsOptions
  | PipelineOptions
  | SplitOptions;
/**
 * First and last step, both included; all steps when absent.
 *
 * @minItems 2
 * @maxItems 2
 */
export type StepRange = [number, number] | null;
/**
 * 'all' or ranges such as '0-3,7'.
 */
export type LayerRanges = string;
/**
 * Scale of the values; log is symmetric about zero for signed values.
 */
export type TransformChoice = 'linear' | 'log';
/**
 * Lowest and highest value of the colours, which are then locked; those of the data when absent.
 *
 * @minItems 2
 * @maxItems 2
 */
export type ColorRange = [number, number] | null;
/**
 * What the model was doing.
 */
export type PhaseChoice = 'train' | 'eval' | 'generate';
/**
 * Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix.
 */
export type RankChoice = number | null;
/**
 * backward shows the gradients of the same tensors. Python calls it pass_.
 */
export type PassChoice = 'forward' | 'backward';
/**
 * Over the finite values of the whole tensor of a layer and step; nonfinite counts the others. kept_…: over what the compressor kept of them.
 */
export type TensorStatistic =
  | 'mean'
  | 'std'
  | 'rms'
  | 'min'
  | 'max'
  | 'skewness'
  | 'kurtosis'
  | 'nonfinite'
  | 'kept_mean'
  | 'kept_std'
  | 'kept_rms'
  | 'kept_min'
  | 'kept_max'
  | 'kept_abs_mean';
/**
 * 'all' or ranges such as '0-15,31', counted from 0.
 */
export type PositionRanges = string;
/**
 * Trailing mean over this many points; 0 draws the numbers as they are.
 */
export type SmoothingPoints = number;
/**
 * Other runs, or their ids, to compare with.
 */
export type OtherRuns = string[];
/**
 * The runs over one another, or what each of the others is minus, or over, this one.
 */
export type CompareChoice = 'overlay' | 'difference' | 'ratio';
/**
 * Id of the run that the others are compared with as difference or ratio; this one when absent.
 */
export type BaselineRun = string | null;
/**
 * What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed (a scalar such as tokens says how many), or time since the run's first step.
 */
export type AlignChoice = 'step' | 'tokens' | 'time';
/**
 * Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').
 */
export type HiddenLines = string[];
/**
 * Let the axis of values end where all but the outermost hundredth do; the caption says what lies outside.
 */
export type IgnoreOutliers = boolean;
/**
 * What was measured. The last seven are of a cast to fewer bits: of underflow, overflow, saturated and subnormal the mean is the share of values.
 */
export type MeasuredTensors =
  | 'param'
  | 'grad'
  | 'activation'
  | 'dgrad'
  | 'residual'
  | 'residual_dgrad'
  | 'grad_unreduced'
  | 'param_origin'
  | 'exp_avg'
  | 'exp_avg_sq'
  | 'attention_entropy'
  | 'attention_max'
  | 'router_entropy'
  | 'router_similarity'
  | 'stable_rank'
  | 'kernel_norm'
  | 'underflow'
  | 'overflow'
  | 'saturated'
  | 'subnormal'
  | 'cast_error'
  | 'cast_scale'
  | 'cast_amax';
/**
 * What is read of it; near_zero_share is the share of values of a size below 1e-8, nonfinite the number of NaN and infinite values.
 */
export type MomentStatistic =
  | 'l2'
  | 'rms'
  | 'mean'
  | 'variance'
  | 'std'
  | 'skewness'
  | 'kurtosis'
  | 'excess_kurtosis'
  | 'min'
  | 'max'
  | 'near_zero_share'
  | 'nonfinite';
/**
 * Columns that make a group; none is the total. 'capture' is what the pattern's groups find in the name.
 */
export type MomentGroupBy = (
  | 'name'
  | 'layer'
  | 'stack'
  | 'family'
  | 'kind'
  | 'module_type'
  | 'item_type'
  | 'role'
  | 'expert'
  | 'rank'
  | 'stage'
  | 'capture'
)[];

/**
 * Draw a run at a glance: its loss, a map of its layers, what is out of the ordinary, where the time of a step goes, what tracing costs, and the newest text.
 */
export interface OverviewOptions {
  view: 'overview';
  /**
   * Scalars to draw; when absent every one that has 'loss' in its name, or else all.
   */
  names?: string[] | null;
  steps?: StepRange;
}

/**
 * Draw one flag as position × tile, one layer or small multiples, with a step slider.
 */
export interface HeatmapOptions {
  view: 'heatmap';
  /**
   * Trace point by name.
   */
  flag: string;
  /**
   * Named part (q, k, v …); the first when absent.
   */
  part?: string | null;
  layers?: LayerRanges;
  /**
   * Step to draw; follows the newest when absent.
   */
  step?: number | null;
  /**
   * Sample of the batch, counted from 0.
   */
  sample?: number;
  /**
   * Head, where the tensor has a head axis, counted from 0.
   */
  head?: number;
  /**
   * One colour scale for all layers, or one each.
   */
  scale?: 'shared' | 'own';
  transform?: TransformChoice;
  color_range?: ColorRange;
  phase?: PhaseChoice;
  rank?: RankChoice;
  pass?: PassChoice;
  /**
   * Number of a generation: its positions are put together from all its passes, position by tile, and sample is its sequence. 0 is the newest. A step as it is when absent.
   */
  generation?: number | null;
}

/**
 * Draw a statistic of one flag per layer over steps, as lines or as layer × step cells.
 */
export interface TrendOptions {
  view: 'trend';
  /**
   * Trace point by name.
   */
  flag: string;
  /**
   * Named part (q, k, v …); the first when absent.
   */
  part?: string | null;
  layers?: LayerRanges;
  statistic?: TensorStatistic;
  /**
   * A line for each layer, or layer × step cells.
   */
  kind?: 'lines' | 'heatmap';
  steps?: StepRange;
  transform?: TransformChoice;
  color_range?: ColorRange;
  phase?: PhaseChoice;
  rank?: RankChoice;
  pass?: PassChoice;
  positions?: PositionRanges;
  /**
   * Which vector of a projection, counted from 0. Other tensors have none.
   */
  vector?: number;
  /**
   * Band about the mean (only with the statistic mean), over positions and samples: one standard deviation, or a 95 % confidence interval. The interval takes positions for independent, which neighbours are not: the true one is wider.
   */
  interval?: 'none' | 'std' | 'ci95';
  smoothing?: SmoothingPoints;
  runs?: OtherRuns;
  compare?: CompareChoice;
  baseline?: BaselineRun;
  align?: AlignChoice;
  hidden?: HiddenLines;
  ignore_outliers?: IgnoreOutliers;
}

/**
 * Draw named scalars over steps or time.
 */
export interface ScalarsOptions {
  view: 'scalars';
  /**
   * Names to draw; when absent every name that has 'loss' in it, or else all.
   */
  names?: string[] | null;
  steps?: StepRange;
  /**
   * lines: one picture, with a panel for each unit. page: a small picture for each scalar, in sections by the beginning of its name (train/, eval/).
   */
  kind?: 'lines' | 'page';
  /**
   * Of the page: only scalars in whose names all of these words are found.
   */
  search?: string;
  /**
   * Of the page: sections that are folded, such as 'train'.
   */
  folded?: string[];
  /**
   * What the horizontal axis is.
   */
  x?: 'step' | 'time';
  transform?: TransformChoice;
  smoothing?: SmoothingPoints;
  runs?: OtherRuns;
  compare?: CompareChoice;
  baseline?: BaselineRun;
  /**
   * What the runs are called here, this one first; '' keeps a run's own name. Runs of one name are a group: they have one colour, and are hidden together.
   */
  aliases?: string[];
  align?: AlignChoice;
  hidden?: HiddenLines;
  ignore_outliers?: IgnoreOutliers;
}

/**
 * Draw a statistic of one flag as layer × step and, below it, the tensor of the chosen layer and step, with a slider over the steps.
 */
export interface HistoryOptions {
  view: 'history';
  /**
   * Trace point by name.
   */
  flag: string;
  /**
   * Named part (q, k, v …); the first when absent.
   */
  part?: string | null;
  layers?: LayerRanges;
  /**
   * Layer whose tensor is drawn; the first when absent.
   */
  layer?: number | null;
  /**
   * Step whose tensor is drawn; follows the newest when absent.
   */
  step?: number | null;
  statistic?: TensorStatistic;
  steps?: StepRange;
  /**
   * Sample of the batch, counted from 0.
   */
  sample?: number;
  /**
   * Head, where the tensor has a head axis, counted from 0.
   */
  head?: number;
  transform?: TransformChoice;
  color_range?: ColorRange;
  map_range?: ColorRange;
  phase?: PhaseChoice;
  rank?: RankChoice;
  pass?: PassChoice;
}

/**
 * Draw how the values of one flag are distributed over steps, from rows of the compressor Histogram: as a map, as ridges or as quantiles with their error.
 */
export interface DistributionOptions {
  view: 'distribution';
  /**
   * Trace point by name.
   */
  flag: string;
  /**
   * Named part (q, k, v …); the first when absent.
   */
  part?: string | null;
  layers?: LayerRanges;
  tiles?: PositionRanges;
  /**
   * The share of values in each bin by step, the same as ridges of some steps, or quantiles over steps.
   */
  kind?: 'map' | 'ridgeline' | 'quantiles';
  steps?: StepRange;
  transform?: TransformChoice;
  color_range?: ColorRange;
  phase?: PhaseChoice;
  rank?: RankChoice;
  /**
   * Whether the rows of one rank count, which rank names, or those of all ranks that sent some, added up.
   */
  replicas?: 'lowest' | 'all';
  pass?: PassChoice;
}

/**
 * Draw the statistics of parameters, gradients and activations, over any grouping of tensors.
 */
export interface StatisticsOptions {
  view: 'statistics';
  stat?: MeasuredTensors;
  statistic?: MomentStatistic;
  /**
   * lines: each group over steps. overview: total, largest moves and families. layers: each layer at one step. map: each group × step, or × what columns says; layer_map and item_map: the same of layers or item types. tensors: single tensors over steps. table: the rows.
   */
  kind?: 'overview' | 'lines' | 'layers' | 'layer_map' | 'item_map' | 'map' | 'tensors' | 'table';
  by?: MomentGroupBy;
  /**
   * Regular expression whose groups are the column 'capture'; names in which it finds nothing are left out.
   */
  pattern?: string | null;
  where?: MomentFilter;
  steps?: StepRange;
  /**
   * Step of the layer chart, and of a map whose columns are not steps; follows the newest when absent.
   */
  step?: number | null;
  /**
   * How the layer chart is drawn.
   */
  marks?: 'lines' | 'bars';
  /**
   * What the horizontal axis is.
   */
  x?: 'step' | 'samples';
  /**
   * The numbers as they are; divided by the first of their series; minus it; or the change from it in per cent. The first is that of the whole run.
   */
  show?: 'raw' | 'relative' | 'delta' | 'percent';
  /**
   * grad_to_param: gradients over parameters, by the same names. gain: what comes out of a module over what goes in (of dgrads in over out: the way the gradient goes).
   */
  ratio?: 'none' | 'grad_to_param' | 'gain';
  transform?: TransformChoice;
  /**
   * What the columns of a map are: steps, or ranks, layers, stages or experts at one step.
   */
  columns?: 'step' | 'rank' | 'layer' | 'stage' | 'expert';
  /**
   * Colours of a map: without steps, or seven bands by the mean ± 1, 2 and 3 standard deviations of its cells.
   */
  colors?: 'continuous' | 'sigma';
  /**
   * Cells of a map whose lines are drawn below it, as a click on them chooses: the values of the row's columns and that of the column as a list in JSON ('[3,120]': layer 3 at step 120).
   */
  cells?: string[];
  /**
   * What the lines of chosen cells go over. auto: what the map is of one of: ranks where its rows are not ranks and 'where' has some, tensors where its rows are ranks and 'where' has a name, else steps.
   */
  along?: 'auto' | 'step' | 'rank' | 'layer' | 'stage' | 'expert' | 'name';
  color_range?: ColorRange;
  smoothing?: SmoothingPoints;
  /**
   * Let inputs and outputs of modules enter one group, where the same values may count twice.
   */
  mixed?: boolean;
  /**
   * At most so many lines: those with the largest values. The caption says what is left out.
   */
  series?: number;
  runs?: OtherRuns;
  compare?: CompareChoice;
  align?: AlignChoice;
  hidden?: HiddenLines;
  ignore_outliers?: IgnoreOutliers;
  /**
   * Of the table: new columns as expressions of arquero, such as 'share = d.value / op.max(d.value)', several with ';' between. Functions of several rows go over the rows of one group.
   */
  derive?: string | null;
  /**
   * Of the table: which rows it shows, as an expression of arquero, such as 'd.value > op.mean(d.value)'.
   */
  filter?: string | null;
}

/**
 * Which tensors take part. Absent members match everything; numbers are texts of ranges such as '0-3,7', words are lists of which one must match.
 */
export type MomentFilter = {
  /**
   * Regular expression that is found somewhere in the name.
   */
  name?: string;
  layer?: LayerRanges;
  expert?: LayerRanges;
  rank?: LayerRanges;
  stage?: LayerRanges;
  stack?: string[];
  family?: string[];
  kind?: string[];
  module_type?: string[];
  item_type?: string[];
  role?: ('input' | 'output')[];
};

/**
 * Show whether a training is healthy: its first anomaly, what that reached next, and all alarms.
 */
export interface HealthOptions {
  view: 'health';
  /**
   * Alarms of this severity only.
   */
  severity?: 'all' | 'critical' | 'warning' | 'note';
  /**
   * Alarms of this rule only; of all when absent.
   */
  rule?: string | null;
  steps?: StepRange;
  /**
   * Tensor or scalar whose line is drawn around an alarm; that of the first anomaly when absent.
   */
  name?: string | null;
  /**
   * Step of that alarm; the first one of the tensor when absent.
   */
  step?: number | null;
}

/**
 * Show what each rank does in its steps, all on one clock, who makes the others wait, and what that costs.
 */
export interface TimelineOptions {
  view: 'timeline';
  /**
   * Ranks, such as '0-3,7'. Of more than 64 the first are drawn, those that make others wait among them.
   */
  ranks?: string;
  /**
   * A lane of spans for each rank, or how much longer each rank computes than its stage, rank × step.
   */
  kind?: 'lanes' | 'map';
  steps?: StepRange;
  /**
   * Also draw the critical path: what each step waited for from its end back to its beginning, of at most 30 steps.
   */
  path?: boolean;
  /**
   * Spans with this in their name or kind are counted and can be gone to, one after the other.
   */
  find?: string;
  hidden?: HiddenLines;
}

/**
 * Show the text that a model writes, token by token, with the probability of each and what else it could have been.
 */
export interface TokensOptions {
  view: 'tokens';
  /**
   * Number of the generation; the newest when absent.
   */
  generation?: number | null;
  /**
   * Another generation to show beside it, with the first difference marked; of one under a perturbation its clean control when absent.
   */
  other?: number | null;
  /**
   * Run of the other generation; the same run when absent.
   */
  other_run?: string | null;
  /**
   * Sequence of the generation, counted from 0; samples of one prompt are neighbours.
   */
  sequence?: number;
  /**
   * What colours the tokens: probability, surprise (−log2 of it, bits), entropy of the distribution (nats), or rank.
   */
  color?: 'probability' | 'surprise' | 'entropy' | 'rank' | 'none';
  /**
   * Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent.
   */
  position?: number | null;
}

/**
 * Draw attention probabilities of a generated text, layers × heads, or what distinguishes the heads.
 */
export interface AttentionOptions {
  view: 'attention';
  /**
   * Number of the generation; the newest when absent.
   */
  generation?: number | null;
  /**
   * Sequence of the generation, counted from 0; samples of one prompt are neighbours.
   */
  sequence?: number;
  /**
   * Step of the training whose attention is drawn instead of a generation's, and sequence is its sample. When absent the generation's, and of a run that wrote nothing the newest step's.
   */
  step?: number | null;
  layers?: LayerRanges;
  /**
   * Heads, such as '0-3', or 'all'. One layer and one head are drawn in full.
   */
  heads?: string;
  /**
   * Query × key for each layer and head, or layer × head coloured by a measure of the head.
   */
  kind?: 'maps' | 'heads';
  /**
   * Of a head, over all queries: mean entropy of its attention (nats), mean distance to the key in tokens, or share on the first token.
   */
  measure?: 'entropy' | 'distance' | 'first';
  /**
   * Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent.
   */
  position?: number | null;
  transform?: TransformChoice;
  color_range?: ColorRange;
}

/**
 * Draw the vectors of tokens as points of a plane: PCA or UMAP of one flag.
 */
export interface ProjectionOptions {
  view: 'projection';
  /**
   * Trace point by name.
   */
  flag: string;
  /**
   * Named part (q, k, v …); the first when absent.
   */
  part?: string | null;
  /**
   * Layer, counted from 0.
   */
  layer?: number;
  /**
   * Turn the points of each layer onto those of the layer before (Procrustes), so that they stay where they were when the layer changes. Otherwise the axes are each layer's own components.
   */
  keep_axes?: boolean;
  /**
   * Generations whose tokens are drawn: 'newest', or numbers such as '3-5,8'.
   */
  generations?: string;
  /**
   * Principal components, with the variance that they explain, or UMAP, which keeps neighbours together and no distances.
   */
  method?: 'pca' | 'umap';
  /**
   * Divide each feature by its deviation first.
   */
  standardise?: boolean;
  /**
   * Principal component on the horizontal axis, counted from 1.
   */
  across?: number;
  /**
   * Principal component on the vertical axis.
   */
  up?: number;
  /**
   * Neighbours that UMAP keeps together.
   */
  neighbors?: number;
  /**
   * Seed of UMAP.
   */
  seed?: number;
  /**
   * What colours the points: the prompt, the token's text, its position, or the step.
   */
  color?: 'prompt' | 'token' | 'position' | 'step';
  /**
   * Tokens that are looked at together, as generation:sequence:positions: '2:0:4-5,2:1:7'. Drawing a loop around them with Shift held, or a box with Ctrl and Shift, chooses them.
   */
  group?: string;
  /**
   * Position that is marked in every sequence, counted from 0; what is pinned in another view when absent.
   */
  position?: number | null;
}

/**
 * Show what each layer would predict at each position: the logit lens.
 */
export interface LensOptions {
  view: 'lens';
  /**
   * Number of the generation; the newest when absent.
   */
  generation?: number | null;
  /**
   * Sequence of the generation, counted from 0; samples of one prompt are neighbours.
   */
  sequence?: number;
  layers?: LayerRanges;
  /**
   * What colours a cell: the probability of its best candidate, that of the token that came in the end, the rank of that token, or the entropy (nats).
   */
  color?: 'probability' | 'final' | 'rank' | 'entropy';
  /**
   * Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent.
   */
  position?: number | null;
}

/**
 * Show what a perturbation changed: of each next token, of each layer, and over a sweep of settings.
 */
export interface EffectsOptions {
  view: 'effects';
  /**
   * Number of the generation; the newest when absent.
   */
  generation?: number | null;
  /**
   * Sequence of the generation, counted from 0; samples of one prompt are neighbours.
   */
  sequence?: number;
  /**
   * A measure of each next token over positions; the distance of hidden states, layer × position; or a measure over the points of a sweep.
   */
  kind?: 'positions' | 'layers' | 'sweep';
  /**
   * Kullback-Leibler divergence (nats), change of the most probable token, relative distance of hidden states, or first position at which the text differs (of a sweep).
   */
  measure?: 'kl' | 'changed' | 'distance' | 'divergence';
  /**
   * Position that is looked at, counted from 0; follows the newest, or what is pinned in another view, when absent.
   */
  position?: number | null;
  transform?: TransformChoice;
}

/**
 * Show what each pipeline stage does in a step: as planned by a schedule, as measured, and what other schedules would give in time and memory. Times that are not set here are the run's own where it recorded spans, else 1 ms.
 */
export interface PipelineOptions {
  view: 'pipeline';
  /**
   * The schedule whose plan is drawn. best: the fastest within memory_gb; measured: the order in which the run's own steps ran.
   */
  schedule?:
    | 'best'
    | 'measured'
    | 'gpipe'
    | '1f1b'
    | 'interleaved_1f1b'
    | 'depth_first'
    | 'breadth_first'
    | 'megadpp'
    | 'zb_h1'
    | 'zb_h2'
    | 'zb_v'
    | 'dualpipe'
    | 'dualpipev'
    | 'search';
  /**
   * The plan as lanes of stages, its memory over time, the schedules side by side, or all three.
   */
  kind?: 'all' | 'plan' | 'memory' | 'schedules';
  /**
   * Pipeline stages; 0: as many as the run has, 4 where it has none.
   */
  stages?: number;
  /**
   * Micro-batches of a step; 0: as many as the run has, twice the stages where it has one.
   */
  micro_batches?: number;
  /**
   * Model chunks of a stage, for the schedules that take several.
   */
  chunks?: number;
  /**
   * ms of a forward pass of one micro-batch through one stage.
   */
  forward?: number | null;
  /**
   * ms of the part of its backward pass that gives the gradient of the stage's input.
   */
  input_gradient?: number | null;
  /**
   * ms of the part that gives the gradients of the weights.
   */
  weight_gradient?: number | null;
  /**
   * ms of a stage's optimizer step.
   */
  optimizer?: number | null;
  /**
   * ms before a message between two stages begins to arrive.
   */
  latency?: number | null;
  /**
   * GB/s of a link between two stages in each direction; 0: no limit.
   */
  bandwidth?: number | null;
  /**
   * How much durations vary, % (standard deviation).
   */
  jitter?: number | null;
  /**
   * MB of a micro-batch's activations between two stages.
   */
  message_mb?: number;
  /**
   * MB that a stage keeps of one micro-batch for its backward pass.
   */
  activation_mb?: number;
  /**
   * MB of a stage's weights, gradients and optimizer state.
   */
  weight_mb?: number;
  /**
   * GB that a stage may hold; none: no limit.
   */
  memory_gb?: number | null;
  steps?: StepRange;
  /**
   * Lay the last measured step over the plan.
   */
  measured?: boolean;
  hidden?: HiddenLines;
}

/**
 * Show which process does what where forward and backward passes run apart, what each does in a step, as planned and as measured, and whether that is worth it against other ways to train on the same devices. Times that are not set here are the run's own where it recorded spans.
 */
export interface SplitOptions {
  view: 'split';
  /**
   * The layout whose step is drawn. split: the best split; run: that of the run itself; best: the fastest of all; the others: the best of a family.
   */
  layout?:
    'split' | 'run' | 'best' | 'ordinary' | 'recompute' | 'pipeline' | 'pipeline_recompute' | 'megafbd';
  /**
   * The step as lanes of processes, the map of roles, the layouts side by side, or all three.
   */
  kind?: 'all' | 'plan' | 'map' | 'layouts';
  /**
   * Whose map of roles is drawn: without a coordinator, that of MegaFBD with both of its flags, or what it means by one of them.
   */
  rank_map?: 'megalens' | 'megafbd' | 'one_flag';
  /**
   * Tensor-parallel degree of the map's backward processes; that of the layout when absent.
   */
  tensor?: number | null;
  /**
   * Stages of the map; those of the layout when absent.
   */
  pipeline?: number | null;
  /**
   * Replicas of the map; those of the layout when absent. Of MegaFBD's maps Megatron's data-parallel size is twice as much.
   */
  data?: number | null;
  /**
   * Tensor-parallel degree of the map's forward processes; that of the layout when absent.
   */
  forward_tensor?: number | null;
  /**
   * Whether the map's last stage has forward processes; as the layout when absent.
   */
  last_forward?: boolean | null;
  /**
   * Devices of the first kind; of a split run those of forward processes.
   */
  devices?: number | null;
  /**
   * Devices of the second kind; of a split run those of backward processes. 0: none.
   */
  others?: number | null;
  /**
   * ms of a forward pass of one micro-batch through the whole model on a device of the first kind.
   */
  forward?: number | null;
  /**
   * ms of its backward pass there.
   */
  backward?: number | null;
  /**
   * How many times as long the second kind takes.
   */
  others_slower?: number | null;
  /**
   * Micro-batches of a step, of all replicas together.
   */
  micro_batches?: number | null;
  /**
   * Layers between which the model can be cut.
   */
  model_layers?: number | null;
  /**
   * Largest tensor-parallel degree that is tried.
   */
  most_tensor?: number | null;
  /**
   * Micro-batches that a backward process recomputes ahead of their gradients.
   */
  ahead?: number | null;
  /**
   * ms before a message between two processes begins to arrive.
   */
  latency?: number | null;
  /**
   * GB/s of a link between two processes in each direction; 0: no limit.
   */
  bandwidth?: number | null;
  /**
   * MB of a micro-batch's activations between two layers.
   */
  message_mb?: number;
  /**
   * MB that the whole model keeps of one micro-batch for its backward pass.
   */
  activation_mb?: number;
  /**
   * MB of the whole model's weights.
   */
  weight_mb?: number;
  /**
   * MB of its weights, gradients and optimizer state together; that of the weights when absent.
   */
  state_mb?: number | null;
  /**
   * GB that a device of the first kind may hold; none: no limit.
   */
  memory_gb?: number | null;
  /**
   * GB that a device of the second kind may hold; none: no limit.
   */
  others_memory_gb?: number | null;
  /**
   * By how much the times may be off, % (standard deviation): the verdict's interval comes from it.
   */
  uncertainty?: number;
  steps?: StepRange;
  /**
   * Lay the last measured step over the plan of the run's own layout.
   */
  measured?: boolean;
  hidden?: HiddenLines;
}
