// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type { ISchema } from './schema';

/**
 * Options of a view, and all that is known of a view before its code is loaded. The same options object is the Python widget's arguments, the saved state of a tab and a report's recipe.
 */
export type ViewOptions =
  | HeatmapOptions
  | TrendOptions
  | ScalarsOptions
  | HistoryOptions
  | MomentsOptions
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
 * First and last step, both included; all steps when absent.
 *
 * @minItems 2
 * @maxItems 2
 */
export type StepRange = [number, number] | null;
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
 * What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed (a scalar such as tokens says how many), or time since the run's first step.
 */
export type AlignChoice = 'step' | 'tokens' | 'time';
/**
 * Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').
 */
export type HiddenLines = string[];
/**
 * What was measured.
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
  | 'kernel_norm';
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
  align?: AlignChoice;
  hidden?: HiddenLines;
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
   * What the horizontal axis is.
   */
  x?: 'step' | 'time';
  transform?: TransformChoice;
  smoothing?: SmoothingPoints;
  runs?: OtherRuns;
  compare?: CompareChoice;
  align?: AlignChoice;
  hidden?: HiddenLines;
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
 * Draw the statistics of parameters, gradients and activations, over any grouping of tensors.
 */
export interface MomentsOptions {
  view: 'moments';
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

/** protocol/views.schema.json, as a validator takes it, without its prose. */
export const VIEWS_SCHEMA: ISchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  $id: 'megalens:views.v1',
  oneOf: [
    { $ref: '#/$defs/Heatmap' },
    { $ref: '#/$defs/Trend' },
    { $ref: '#/$defs/Scalars' },
    { $ref: '#/$defs/History' },
    { $ref: '#/$defs/Moments' },
    { $ref: '#/$defs/Health' },
    { $ref: '#/$defs/Timeline' },
    { $ref: '#/$defs/Tokens' },
    { $ref: '#/$defs/Attention' },
    { $ref: '#/$defs/Scatter' },
    { $ref: '#/$defs/Lens' },
    { $ref: '#/$defs/Effects' },
    { $ref: '#/$defs/Pipeline' },
    { $ref: '#/$defs/Split' }
  ],
  $defs: {
    Layers: {
      type: 'string',
      maxLength: 500,
      pattern: '^(all|(-1|[0-9]+)(-[0-9]+)?(,(-1|[0-9]+)(-[0-9]+)?)*)$'
    },
    Positions: { type: 'string', maxLength: 500, pattern: '^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$' },
    StepRange: { type: ['array', 'null'], items: { type: 'integer' }, minItems: 2, maxItems: 2 },
    ColorRange: { type: ['array', 'null'], items: { type: 'number' }, minItems: 2, maxItems: 2 },
    Rank: { type: ['integer', 'null'], minimum: 0 },
    Pass: { enum: ['forward', 'backward'] },
    Phase: { enum: ['train', 'eval', 'generate'] },
    OtherRuns: { type: 'array', items: { type: 'string' }, maxItems: 8 },
    Compare: { enum: ['overlay', 'difference', 'ratio'] },
    Align: { enum: ['step', 'tokens', 'time'] },
    Smoothing: { type: 'integer', minimum: 0 },
    Hidden: { type: 'array', items: { type: 'string', maxLength: 500 }, maxItems: 500, uniqueItems: true },
    Transform: { enum: ['linear', 'log'] },
    Statistic: {
      enum: [
        'mean',
        'std',
        'rms',
        'min',
        'max',
        'skewness',
        'kurtosis',
        'nonfinite',
        'kept_mean',
        'kept_std',
        'kept_rms',
        'kept_min',
        'kept_max',
        'kept_abs_mean'
      ]
    },
    Measured: {
      enum: [
        'param',
        'grad',
        'activation',
        'dgrad',
        'residual',
        'residual_dgrad',
        'grad_unreduced',
        'param_origin',
        'exp_avg',
        'exp_avg_sq',
        'attention_entropy',
        'attention_max',
        'router_entropy',
        'router_similarity',
        'stable_rank',
        'kernel_norm'
      ]
    },
    MomentStatistic: {
      enum: [
        'l2',
        'rms',
        'mean',
        'variance',
        'std',
        'skewness',
        'kurtosis',
        'excess_kurtosis',
        'min',
        'max',
        'near_zero_share',
        'nonfinite'
      ]
    },
    Where: {
      type: 'object',
      additionalProperties: false,
      properties: {
        name: { type: 'string', maxLength: 500 },
        layer: { $ref: '#/$defs/Layers' },
        expert: { $ref: '#/$defs/Layers' },
        rank: { $ref: '#/$defs/Layers' },
        stage: { $ref: '#/$defs/Layers' },
        stack: { type: 'array', items: { type: 'string' } },
        family: { type: 'array', items: { type: 'string' } },
        kind: { type: 'array', items: { type: 'string' } },
        module_type: { type: 'array', items: { type: 'string' } },
        item_type: { type: 'array', items: { type: 'string' } },
        role: { type: 'array', items: { enum: ['input', 'output'] } }
      }
    },
    GroupBy: {
      type: 'array',
      maxItems: 4,
      uniqueItems: true,
      items: {
        enum: [
          'name',
          'layer',
          'stack',
          'family',
          'kind',
          'module_type',
          'item_type',
          'role',
          'expert',
          'rank',
          'stage',
          'capture'
        ]
      }
    },
    Heatmap: {
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'heatmap' },
        flag: { type: 'string' },
        part: { type: ['string', 'null'], default: null },
        layers: { $ref: '#/$defs/Layers', default: '0' },
        step: { type: ['integer', 'null'], default: null },
        sample: { type: 'integer', minimum: 0, default: 0 },
        head: { type: 'integer', minimum: 0, default: 0 },
        scale: { enum: ['shared', 'own'], default: 'shared' },
        transform: { $ref: '#/$defs/Transform', default: 'linear' },
        color_range: { $ref: '#/$defs/ColorRange', default: null },
        phase: { $ref: '#/$defs/Phase', default: 'train' },
        rank: { $ref: '#/$defs/Rank', default: null },
        pass: { $ref: '#/$defs/Pass', default: 'forward' },
        generation: { type: ['integer', 'null'], minimum: 0, default: null }
      }
    },
    Trend: {
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'trend' },
        flag: { type: 'string' },
        part: { type: ['string', 'null'], default: null },
        layers: { $ref: '#/$defs/Layers', default: 'all' },
        statistic: { $ref: '#/$defs/Statistic', default: 'rms' },
        kind: { enum: ['lines', 'heatmap'], default: 'lines' },
        steps: { $ref: '#/$defs/StepRange', default: null },
        transform: { $ref: '#/$defs/Transform', default: 'linear' },
        color_range: { $ref: '#/$defs/ColorRange', default: null },
        phase: { $ref: '#/$defs/Phase', default: 'train' },
        rank: { $ref: '#/$defs/Rank', default: null },
        pass: { $ref: '#/$defs/Pass', default: 'forward' },
        positions: { $ref: '#/$defs/Positions', default: 'all' },
        vector: { type: 'integer', minimum: 0, default: 0 },
        interval: { enum: ['none', 'std', 'ci95'], default: 'none' },
        smoothing: { $ref: '#/$defs/Smoothing', default: 0 },
        runs: { $ref: '#/$defs/OtherRuns', default: [] },
        compare: { $ref: '#/$defs/Compare', default: 'overlay' },
        align: { $ref: '#/$defs/Align', default: 'step' },
        hidden: { $ref: '#/$defs/Hidden', default: [] }
      }
    },
    History: {
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'history' },
        flag: { type: 'string' },
        part: { type: ['string', 'null'], default: null },
        layers: { $ref: '#/$defs/Layers', default: 'all' },
        layer: { type: ['integer', 'null'], minimum: -1, default: null },
        step: { type: ['integer', 'null'], default: null },
        statistic: { $ref: '#/$defs/Statistic', default: 'rms' },
        steps: { $ref: '#/$defs/StepRange', default: null },
        sample: { type: 'integer', minimum: 0, default: 0 },
        head: { type: 'integer', minimum: 0, default: 0 },
        transform: { $ref: '#/$defs/Transform', default: 'linear' },
        color_range: { $ref: '#/$defs/ColorRange', default: null },
        map_range: { $ref: '#/$defs/ColorRange', default: null },
        phase: { $ref: '#/$defs/Phase', default: 'train' },
        rank: { $ref: '#/$defs/Rank', default: null },
        pass: { $ref: '#/$defs/Pass', default: 'forward' }
      }
    },
    Moments: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'moments' },
        stat: { $ref: '#/$defs/Measured', default: 'grad' },
        statistic: { $ref: '#/$defs/MomentStatistic', default: 'l2' },
        kind: {
          enum: ['overview', 'lines', 'layers', 'layer_map', 'item_map', 'map', 'tensors', 'table'],
          default: 'lines'
        },
        by: { $ref: '#/$defs/GroupBy', default: ['layer'] },
        pattern: { type: ['string', 'null'], maxLength: 500, default: null },
        where: { $ref: '#/$defs/Where', default: {} },
        steps: { $ref: '#/$defs/StepRange', default: null },
        step: { type: ['integer', 'null'], default: null },
        marks: { enum: ['lines', 'bars'], default: 'lines' },
        x: { enum: ['step', 'samples'], default: 'step' },
        show: { enum: ['raw', 'relative', 'delta', 'percent'], default: 'raw' },
        ratio: { enum: ['none', 'grad_to_param', 'gain'], default: 'none' },
        transform: { $ref: '#/$defs/Transform', default: 'linear' },
        columns: { enum: ['step', 'rank', 'layer', 'stage', 'expert'], default: 'step' },
        colors: { enum: ['continuous', 'sigma'], default: 'continuous' },
        cells: {
          type: 'array',
          items: { type: 'string', maxLength: 500 },
          maxItems: 20,
          uniqueItems: true,
          default: []
        },
        along: { enum: ['auto', 'step', 'rank', 'layer', 'stage', 'expert', 'name'], default: 'auto' },
        color_range: { $ref: '#/$defs/ColorRange', default: null },
        smoothing: { $ref: '#/$defs/Smoothing', default: 0 },
        mixed: { type: 'boolean', default: false },
        series: { type: 'integer', minimum: 1, maximum: 500, default: 40 },
        runs: { $ref: '#/$defs/OtherRuns', default: [] },
        compare: { $ref: '#/$defs/Compare', default: 'overlay' },
        align: { $ref: '#/$defs/Align', default: 'step' },
        hidden: { $ref: '#/$defs/Hidden', default: [] },
        derive: { type: ['string', 'null'], maxLength: 500, default: null },
        filter: { type: ['string', 'null'], maxLength: 500, default: null }
      }
    },
    Scalars: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'scalars' },
        names: { type: ['array', 'null'], items: { type: 'string' }, default: null },
        steps: { $ref: '#/$defs/StepRange', default: null },
        x: { enum: ['step', 'time'], default: 'step' },
        transform: { $ref: '#/$defs/Transform', default: 'linear' },
        smoothing: { $ref: '#/$defs/Smoothing', default: 0 },
        runs: { $ref: '#/$defs/OtherRuns', default: [] },
        compare: { $ref: '#/$defs/Compare', default: 'overlay' },
        align: { $ref: '#/$defs/Align', default: 'step' },
        hidden: { $ref: '#/$defs/Hidden', default: [] }
      }
    },
    Health: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'health' },
        severity: { enum: ['all', 'critical', 'warning', 'note'], default: 'all' },
        rule: { type: ['string', 'null'], default: null },
        steps: { $ref: '#/$defs/StepRange', default: null },
        name: { type: ['string', 'null'], default: null },
        step: { type: ['integer', 'null'], default: null }
      }
    },
    Timeline: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'timeline' },
        ranks: { type: 'string', maxLength: 500, default: 'all' },
        kind: { enum: ['lanes', 'map'], default: 'lanes' },
        steps: { $ref: '#/$defs/StepRange', default: null },
        path: { type: 'boolean', default: false },
        find: { type: 'string', maxLength: 200, default: '' },
        hidden: { $ref: '#/$defs/Hidden', default: [] }
      }
    },
    Tokens: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'tokens' },
        generation: { type: ['integer', 'null'], minimum: 1, default: null },
        other: { type: ['integer', 'null'], minimum: 1, default: null },
        other_run: { type: ['string', 'null'], maxLength: 500, default: null },
        sequence: { type: 'integer', minimum: 0, default: 0 },
        color: { enum: ['probability', 'surprise', 'entropy', 'rank', 'none'], default: 'probability' },
        position: { type: ['integer', 'null'], minimum: 0, default: null }
      }
    },
    Attention: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'attention' },
        generation: { type: ['integer', 'null'], minimum: 1, default: null },
        sequence: { type: 'integer', minimum: 0, default: 0 },
        step: { type: ['integer', 'null'], default: null },
        layers: { $ref: '#/$defs/Layers', default: '0' },
        heads: {
          type: 'string',
          maxLength: 500,
          pattern: '^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$',
          default: 'all'
        },
        kind: { enum: ['maps', 'heads'], default: 'maps' },
        measure: { enum: ['entropy', 'distance', 'first'], default: 'entropy' },
        position: { type: ['integer', 'null'], minimum: 0, default: null },
        transform: { $ref: '#/$defs/Transform', default: 'linear' },
        color_range: { $ref: '#/$defs/ColorRange', default: null }
      }
    },
    Scatter: {
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'projection' },
        flag: { type: 'string', maxLength: 100 },
        part: { type: ['string', 'null'], default: null },
        layer: { type: 'integer', minimum: -1, default: 0 },
        keep_axes: { type: 'boolean', default: true },
        generations: {
          type: 'string',
          maxLength: 500,
          pattern: '^(newest|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$',
          default: 'newest'
        },
        method: { enum: ['pca', 'umap'], default: 'pca' },
        standardise: { type: 'boolean', default: false },
        across: { type: 'integer', minimum: 1, maximum: 8, default: 1 },
        up: { type: 'integer', minimum: 1, maximum: 8, default: 2 },
        neighbors: { type: 'integer', minimum: 2, maximum: 200, default: 15 },
        seed: { type: 'integer', minimum: 0, maximum: 4294967295, default: 0 },
        color: { enum: ['prompt', 'token', 'position', 'step'], default: 'prompt' },
        group: {
          type: 'string',
          maxLength: 20000,
          pattern: '^([0-9]+:[0-9]+:[0-9]+(-[0-9]+)?(,[0-9]+:[0-9]+:[0-9]+(-[0-9]+)?)*)?$',
          default: ''
        },
        position: { type: ['integer', 'null'], minimum: 0, default: null }
      }
    },
    Lens: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'lens' },
        generation: { type: ['integer', 'null'], minimum: 1, default: null },
        sequence: { type: 'integer', minimum: 0, default: 0 },
        layers: { $ref: '#/$defs/Layers', default: 'all' },
        color: { enum: ['probability', 'final', 'rank', 'entropy'], default: 'probability' },
        position: { type: ['integer', 'null'], minimum: 0, default: null }
      }
    },
    Effects: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'effects' },
        generation: { type: ['integer', 'null'], minimum: 1, default: null },
        sequence: { type: 'integer', minimum: 0, default: 0 },
        kind: { enum: ['positions', 'layers', 'sweep'], default: 'positions' },
        measure: { enum: ['kl', 'changed', 'distance', 'divergence'], default: 'kl' },
        position: { type: ['integer', 'null'], minimum: 0, default: null },
        transform: { $ref: '#/$defs/Transform', default: 'linear' }
      }
    },
    Pipeline: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'pipeline' },
        schedule: {
          enum: [
            'best',
            'measured',
            'gpipe',
            '1f1b',
            'interleaved_1f1b',
            'depth_first',
            'breadth_first',
            'megadpp',
            'zb_h1',
            'zb_h2',
            'zb_v',
            'dualpipe',
            'dualpipev',
            'search'
          ],
          default: 'best'
        },
        kind: { enum: ['all', 'plan', 'memory', 'schedules'], default: 'all' },
        stages: { type: 'integer', minimum: 0, maximum: 1024, default: 0 },
        micro_batches: { type: 'integer', minimum: 0, maximum: 65536, default: 0 },
        chunks: { type: 'integer', minimum: 1, maximum: 64, default: 2 },
        forward: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        input_gradient: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        weight_gradient: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        optimizer: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        latency: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        bandwidth: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        jitter: { type: ['number', 'null'], minimum: 0, maximum: 200, default: null },
        message_mb: { type: 'number', minimum: 0, maximum: 1000000000, default: 0 },
        activation_mb: { type: 'number', minimum: 0, maximum: 1000000000, default: 0 },
        weight_mb: { type: 'number', minimum: 0, maximum: 1000000000, default: 0 },
        memory_gb: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        steps: { $ref: '#/$defs/StepRange', default: null },
        measured: { type: 'boolean', default: true },
        hidden: { $ref: '#/$defs/Hidden', default: [] }
      }
    },
    Split: {
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'split' },
        layout: {
          enum: [
            'split',
            'run',
            'best',
            'ordinary',
            'recompute',
            'pipeline',
            'pipeline_recompute',
            'megafbd'
          ],
          default: 'split'
        },
        kind: { enum: ['all', 'plan', 'map', 'layouts'], default: 'all' },
        rank_map: { enum: ['megalens', 'megafbd', 'one_flag'], default: 'megalens' },
        tensor: { type: ['integer', 'null'], minimum: 1, maximum: 64, default: null },
        pipeline: { type: ['integer', 'null'], minimum: 1, maximum: 1024, default: null },
        data: { type: ['integer', 'null'], minimum: 1, maximum: 2048, default: null },
        forward_tensor: { type: ['integer', 'null'], minimum: 1, maximum: 64, default: null },
        last_forward: { type: ['boolean', 'null'], default: null },
        devices: { type: ['integer', 'null'], minimum: 1, maximum: 1024, default: null },
        others: { type: ['integer', 'null'], minimum: 0, maximum: 1024, default: null },
        forward: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        backward: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        others_slower: { type: ['number', 'null'], minimum: 0.000001, maximum: 1000000, default: null },
        micro_batches: { type: ['integer', 'null'], minimum: 1, maximum: 4096, default: null },
        model_layers: { type: ['integer', 'null'], minimum: 1, maximum: 1024, default: null },
        most_tensor: { type: ['integer', 'null'], minimum: 1, maximum: 64, default: null },
        ahead: { type: ['integer', 'null'], minimum: 1, maximum: 64, default: null },
        latency: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        bandwidth: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        message_mb: { type: 'number', minimum: 0, maximum: 1000000000, default: 0 },
        activation_mb: { type: 'number', minimum: 0, maximum: 1000000000, default: 0 },
        weight_mb: { type: 'number', minimum: 0, maximum: 1000000000, default: 0 },
        state_mb: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        memory_gb: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        others_memory_gb: { type: ['number', 'null'], minimum: 0, maximum: 1000000000, default: null },
        uncertainty: { type: 'number', minimum: 0, maximum: 100, default: 5 },
        steps: { $ref: '#/$defs/StepRange', default: null },
        measured: { type: 'boolean', default: true },
        hidden: { $ref: '#/$defs/Hidden', default: [] }
      }
    }
  }
};
