// Generated from protocol/messages.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/**
 * Every JSON control message of the megalens.v2 protocol. Binary frames are described in README.md.
 */
export type Message =
  | Join
  | Announce
  | Hello
  | Configure
  | Configured
  | Status
  | ErrorMessage
  | Goodbye
  | Generate
  | Cancel
  | Generating;
/**
 * What a connection is for.
 */
export type Role = 'producer' | 'viewer';
/**
 * What the model was doing.
 */
export type Phase = 'train' | 'eval' | 'generate';
/**
 * Whether values are what a forward pass gave or their gradients.
 */
export type Pass = 'forward' | 'backward';
/**
 * What viewers may do to the training beyond looking, where its script allows it: pause (also single steps), watched (train only while a viewer is attached), perturb, generate (have the model write text).
 */
export type Control = 'pause' | 'watched' | 'perturb' | 'generate';
/**
 * waiting: no producer yet; training: steps arrive; paused: the training waits at a step because somebody asked for it; idle: a producer is attached and no step ended for 3 s; finished: the producer said goodbye; lost: the producer went without a goodbye.
 */
export type RunState = 'waiting' | 'training' | 'paused' | 'idle' | 'finished' | 'lost';
/**
 * First and last step, both inclusive.
 *
 * @minItems 2
 * @maxItems 2
 */
export type StepSpan = [number, number];
/**
 * silent: nothing was heard of it for 2 s, it is stopped or frozen; lost: its connection ended without a goodbye.
 */
export type RankCondition = 'training' | 'paused' | 'idle' | 'silent' | 'lost' | 'finished';
/**
 * Stable machine-readable reason.
 */
export type ErrorCode =
  | 'bad-message'
  | 'bad-frame'
  | 'too-large'
  | 'unauthorized'
  | 'forbidden'
  | 'version-mismatch'
  | 'join-expected'
  | 'not-found'
  | 'unknown-flag'
  | 'unknown-layer'
  | 'unavailable-flag'
  | 'unknown-compressor'
  | 'bad-parameter'
  | 'bad-reduction'
  | 'bad-vectors'
  | 'no-producer'
  | 'refused'
  | 'internal';

/**
 * First message of every connection, client to hub.
 */
export interface Join {
  type: 'join';
  /**
   * megalens.v2
   */
  protocol: string;
  role: Role;
  peer: Peer;
  /**
   * Last sequence number that this viewer has, or null for a first connection.
   */
  since?: number | null;
  /**
   * Run that since belongs to; another run's since is ignored.
   */
  run?: string;
  /**
   * How many bytes of past tensors frames to send at most, and of moments frames as many more; scalars and audit always come whole. Absent: the hub's own bound.
   */
  backlog?: number;
}

/**
 * How a program names itself: shown to other viewers and kept in the audit stream.
 */
export interface Peer {
  /**
   * Such as 'panel', 'kernel', 'tail', 'tracer'.
   */
  name: string;
  version: string;
  /**
   * The person, where the program knows.
   */
  user?: string;
}

/**
 * Producer to hub after hello: what it can trace. A later announce of the same rank replaces it.
 */
export interface Announce {
  type: 'announce';
  rank: number;
  run_name?: string;
  model: Model;
  layout: Layout;
  flags: FlagInfo[];
  compressors: CompressorInfo[];
  config: Config;
  /**
   * Such as {megalens, torch, python}.
   */
  versions: {
    [k: string]: string;
  };

  /**
   * What viewers may do beyond looking. Absent: nothing.
   */
  controls?: Control[];
  /**
   * What can be perturbed, where controls has perturb.
   */
  sites?: SiteInfo[];
  /**
   * Streams by name, beside those of streams.json, that this producer sends.
   */
  streams?: {
    [k: string]: DeclaredStream;
  };

  /**
   * By name, instruments whose settings can be changed.
   */
  configurable?: {
    [k: string]: InstrumentInfo;
  };
  statistics?: LoggedStatistics;
  generation?: GenerationInfo;
  phase?: Phase;
  origin?: Origin;
  /**
   * Rank that answers configure for this one. Absent: this one itself.
   */
  leader?: number;
}

/**
 * What the traced model is.
 */
export interface Model {
  name: string;
  /**
   * Which adapter found the trace points.
   */
  adapter?: string;
  layers: number;
  hidden?: number | null;
  heads?: number | null;
  kv_heads?: number | null;
  vocabulary?: number | null;
  parameters?: number | null;
  dtype?: string | null;
  device?: string | null;
}

/**
 * Parallel layout of the job.
 */
export interface Layout {
  world_size: number;
  tp: number;
  pp: number;
  dp: number;
  /**
   * Model chunks per pipeline stage.
   */
  vpp?: number;
  ep?: number;
  cp?: number;
  /**
   * Where each rank stands; absent where nobody told.
   */
  ranks?: RankPlace[];
}

/**
 * Coordinates of one rank, each counted from 0.
 */
export interface RankPlace {
  rank: number;
  tp: number;
  pp: number;
  dp: number;
  host?: string;
}

/**
 * One trace point that a picker can offer.
 */
export interface FlagInfo {
  name: string;
  /**
   * In words, such as 'MLP1 output'.
   */
  title: string;
  /**
   * Layers where it exists, from 0; -1 alone for what is at the embedding; empty when the model has no such point.
   */
  layers: number[];
  /**
   * Named parts of the tensor; expert0, expert1 and so on are those of the experts of a mixture.
   */
  parts: string[];
  /**
   * Axis names of one sample after the batch axis, such as ['position', 'feature'] or ['head', 'query', 'key'].
   */
  axes: string[];
  /**
   * Size of the last axis of all parts together, where known before the first step.
   */
  features?: number | null;
  /**
   * Uncompressed float32 bytes per sample, layer and forward pass, where known: what the size estimate starts from.
   */
  bytes_per_layer: number | null;
  /**
   * Size of the last axis of each part, where known: with it one knows how many tiles there will be.
   */
  widths?: number[];
  compressor?: CompressorSetting;
  /**
   * Why it is not available; absent when it is.
   */
  reason?: string;
  /**
   * In words, where it is and what a forward pass has shown of that, a line for layers that are alike; absent before a pass was watched.
   */
  evidence?: string;
}

/**
 * A compressor by name with its parameters.
 */
export interface CompressorSetting {
  name: string;
  params?: Record<string, unknown>;
}

/**
 * One compressor that a picker can offer, with the JSON Schema of its parameters.
 */
export interface CompressorInfo {
  name: string;
  title: string;
  description: string;
  /**
   * JSON Schema of params: an object schema with title, default and description on each property.
   */
  schema: Record<string, unknown>;
}

/**
 * What is in force: settings by flag name (a flag that is not there is off), an armed perturbation, a mode, a budget, settings of instruments.
 */
export interface Config {
  flags: {
    [k: string]: FlagSetting;
  };
  perturb?: Perturb;
  mode?: Mode;
  /**
   * What tracing may cost, as per cent of step time; null or absent: not limited.
   */
  budget?: number | null;
  /**
   * Settings of instruments by name, complete. Together at most 64 KiB as JSON, and 6 levels deep.
   */
  instruments?: {
    [k: string]: {
      [k: string]: unknown;
    };
  };
}

/**
 * How one flag is traced. Absent members take their defaults: all layers, every step, phase train, one sample, the forward pass, the first data-parallel replica.
 */
export interface FlagSetting {
  /**
   * 'all' or ranges such as '0-3,7'; layers count from 0.
   */
  layers?: string;
  /**
   * Trace every n-th step.
   */
  every?: number;
  phases?: Phase[];
  /**
   * First samples of each micro-batch that are kept; null keeps all.
   */
  samples?: number | null;
  compressor: CompressorSetting;
  /**
   * backward is the gradient of the loss with respect to the same tensor.
   */
  passes?: Pass[];
  /**
   * Whether every data-parallel replica is traced, or the first only.
   */
  replicas?: 'first' | 'all';
}

/**
 * An armed perturbation. It ends by itself.
 */
export interface Perturb {
  /**
   * By name of the site.
   */
  sites: {
    [k: string]: PerturbSite;
  };

  /**
   * The same seed gives the same perturbation; 0 when absent.
   */
  seed?: number;
  /**
   * Training steps after which it disarms itself; 100 when absent.
   */
  steps?: number;
  /**
   * Last step that it touches. Only in what is in force, never in a patch.
   */
  until?: number;
}

/**
 * What is done at one site. Absent members take their defaults: all layers, phase train.
 */
export interface PerturbSite {
  kind: CompressorSetting;
  /**
   * 'all' or ranges such as '0-3,7'; layers count from 0.
   */
  layers?: string;
  phases?: Phase[];
}

/**
 * Whether the training waits. Absent members are off.
 */
export interface Mode {
  /**
   * Every rank waits before the same step.
   */
  paused?: boolean;
  /**
   * In a patch: take this many steps, then be paused.
   */
  steps?: number;
  /**
   * Train only while a viewer is attached.
   */
  while_watched?: boolean;
}

/**
 * One place of the model that can be perturbed.
 */
export interface SiteInfo {
  /**
   * weight, calculation or system.
   */
  name: string;
  title: string;
  layers: number[];
  kinds: KindInfo[];
  /**
   * Why it is not available; absent when it is.
   */
  reason?: string;
}

/**
 * One kind of perturbation, with the JSON Schema of its parameters.
 */
export interface KindInfo {
  name: string;
  title: string;
  description: string;
  schema: Record<string, unknown>;
}

/**
 * One stream as it is declared: what a row is, its columns in order, and how every room treats it.
 */
export interface DeclaredStream {
  title: string;
  doc?: string;
  /**
   * Which instrument fills it.
   */
  instrument?: string;
  policy: DeclaredPolicy;
  fields: StreamField[];
  [k: string]: unknown;
}

/**
 * How every room treats a stream. README.md says what each member means.
 */
export interface DeclaredPolicy {
  /**
   * What the hub keeps for viewers that come later: all rows, or the newest frames.
   */
  keep: string;
  /**
   * Of the newest frames, so many bytes at most; limits.backlog_bytes when absent or larger.
   */
  hub_bytes?: number;
  /**
   * What a slow viewer's full queue gives up: streams of a lower order first. Absent: never.
   */
  drop?: {
    order: number;
    /**
     * First the frames of which every row's identity has a newer row in the queue.
     */
    covered_first?: boolean;
    [k: string]: unknown;
  };

  /**
   * Columns that say what a row is about: a newer row of the same identity takes its place.
   */
  identity?: string[];
  /**
   * Column that rises within an identity: tells rows that come a second time.
   */
  newer?: string;
  /**
   * Bound in a kernel.
   */
  memory_bytes?: number;
  /**
   * Bound in a browser's page.
   */
  page_bytes?: number;
  /**
   * What a row costs beside the values of its lists: to thin out steps before rows are read.
   */
  row_bytes?: number;
  /**
   * Column whose product says how many float32 values a row has.
   */
  shape?: string;
  /**
   * Of rows of one step, streams of a lower order are replayed first.
   */
  replay_order?: number;
  /**
   * Whether a row says that its step was reached; true when absent.
   */
  marks_step?: boolean;
  /**
   * Columns that rows can be asked for by, and how: equal, equal_or_lowest, ranges, newest_finite, peaks. The step can always be.
   */
  ask?: {
    [k: string]: string;
  };

  /**
   * What counts as non-finite: columns that count, or columns of values. first: what is told of the first such row.
   */
  nonfinite?: {
    counts?: string[];
    values?: string[];
    first?: string[];
    [k: string]: unknown;
  };

  /**
   * How a closed recording is packed to Parquet.
   */
  packing?: {
    group_rows?: number;
    group_bytes?: number;
    /**
     * Whether columns carry marks of nulls, which no stream has.
     */
    null_marks?: boolean;
    /**
     * Columns whose values come again; all when absent.
     */
    dictionary?: string[];
    /**
     * Columns that hardly repeat: LZ4 in place of zstd.
     */
    fast?: string[];
    [k: string]: unknown;
  };
  [k: string]: unknown;
}

/**
 * One column of a stream. Types of later versions may come: a reader that does not know one keeps the stream away from itself, and says so.
 */
export interface StreamField {
  name: string;
  /**
   * int64, int32, float64, utf8, list<int32>, list<float32> or list<utf8>.
   */
  type: string;
  doc?: string;
  /**
   * nan: the column came later, and is read as NaN from a recording that lacks it.
   */
  absent?: string;
  [k: string]: unknown;
}

/**
 * An instrument whose settings can be changed while it watches: what a form of them needs. The settings are in config.
 */
export interface InstrumentInfo {
  title: string;
  /**
   * JSON Schema of its settings: objects of numbers, switches and texts, with title and description on each property.
   */
  schema: Record<string, unknown>;
}

/**
 * What is logged to the stream moments, each every so many steps. Absent: nothing is.
 */
export interface LoggedStatistics {
  param?: number;
  grad?: number;
  activation?: number;
  dgrad?: number;
  residual?: number;
  residual_dgrad?: number;
  attention_entropy?: number;
  attention_max?: number;
  router_entropy?: number;
  router_similarity?: number;
  stable_rank?: number;
  kernel_norm?: number;
  /**
   * What casts to fewer bits lose: the stats underflow, overflow, saturated, subnormal, cast_error, cast_scale and cast_amax.
   */
  precision?: number;
}

/**
 * How the model can be asked to write text, where controls has generate.
 */
export interface GenerationInfo {
  /**
   * Sequences of one generation at most: prompts times samples.
   */
  prompts: number;
  /**
   * Tokens that one generation may write at most.
   */
  tokens: number;
  /**
   * Positions that the model can read; null where that is not known.
   */
  context?: number | null;
  /**
   * Why attention probabilities cannot be had; absent where they can.
   */
  no_attention?: string;
  /**
   * Why the logit lens cannot be had; absent where it can.
   */
  no_lens?: string;
}

/**
 * Where the rows come from when no tracer of ours sends them.
 */
export interface Origin {
  /**
   * foreign: another program's hub, translated; replay: a recorded run, sent again; trace: files of another tool.
   */
  kind: 'foreign' | 'replay' | 'trace';
  /**
   * The dialect that the foreign hub speaks, the run that is replayed, or the tool that wrote the files.
   */
  name?: string;
  /**
   * inferred: the peer sends no step numbers, and they were made out from the order of what it sends.
   */
  steps: 'counted' | 'inferred';
  /**
   * Of a replay, relative to the time when it was recorded.
   */
  speed?: number;
  /**
   * Of a trace, how many ranks its files say that the job has.
   */
  ranks?: number;
}

/**
 * Hub to client: the answer to join, and again to every viewer when a producer announces.
 */
export interface Hello {
  type: 'hello';
  protocol: 'megalens.v2';
  run: RunInfo;
  /**
   * Newest sequence number that the hub has given out.
   */
  seq: number;
  /**
   * Present when join named since: what cannot be caught up.
   */
  resumed?: {
    since: number;
    /**
     * Frames after since that the buffer no longer holds or the backlog bound left out.
     */
    missed_frames: number;
    missed_rows: number;
    first_step?: number | null;
    last_step?: number | null;
  };

  /**
   * null until a producer has announced.
   */
  model: Model | null;
  layout: Layout | null;
  flags: FlagInfo[];
  compressors: CompressorInfo[];
  config: Config;
  limits: Limits;
  versions: {
    [k: string]: string;
  };

  /**
   * What viewers may do beyond looking. Absent: nothing.
   */
  controls?: Control[];
  /**
   * What can be perturbed, where controls has perturb.
   */
  sites?: SiteInfo[];
  /**
   * Every stream of the run by name, those that this version of the protocol does not know too.
   */
  streams?: {
    [k: string]: DeclaredStream;
  };

  /**
   * By name, instruments whose settings can be changed.
   */
  configurable?: {
    [k: string]: InstrumentInfo;
  };
  statistics?: LoggedStatistics;
  generation?: GenerationInfo;
  phase?: Phase;
  origin?: Origin;
}

/**
 * What identifies a run.
 */
export interface RunInfo {
  id: string;
  name: string;
  /**
   * Seconds since the epoch, up to the year 9999.
   */
  started: number;
}

/**
 * Bounds that the hub enforces.
 */
export interface Limits {
  max_message_bytes: number;
  viewer_queue_bytes: number;
  backlog_bytes: number;
}

/**
 * Viewer to hub, hub to producers: change what is traced, at any time.
 */
export interface Configure {
  type: 'configure';
  /**
   * Chosen by the viewer; every answer carries it. The hub adds a prefix towards producers so that two viewers' ids never meet.
   */
  id: string;
  patch: ConfigPatch;
}

/**
 * A change to a Config: each named flag is replaced, null switches it off, the others stay. perturb is replaced as a whole, null disarms. Members of mode that are not named stay, and so do those of instruments' settings.
 */
export interface ConfigPatch {
  flags: {
    [k: string]: FlagSetting | null;
  };
  perturb?: Perturb | null;
  mode?: Mode;
  /**
   * What tracing may cost, as per cent of step time; null or absent: not limited.
   */
  budget?: number | null;
  /**
   * By name of an instrument a JSON Merge Patch (RFC 7396) of its settings: members that are not named stay, null takes one back to its default, lists are replaced.
   */
  instruments?: {
    [k: string]: {
      [k: string]: unknown;
    };
  };
}

/**
 * Producer to hub, hub to all viewers: twice for each configure, first when accepted (applied false, the step from which it can apply), then when applied.
 */
export interface Configured {
  type: 'configured';
  id: string;
  applied: boolean;
  step: number;
  config: Config;
  by?: Peer;
  /**
   * Seconds since the epoch, the hub's clock.
   */
  time?: number;
}

/**
 * How the run is. Producer to hub with what a producer knows, hub to viewers with everything, at most every 500 ms and at least every 2 s.
 */
export interface Status {
  type: 'status';
  state: RunState;
  /**
   * Newest step; 0 before the first.
   */
  step: number;
  time?: number;
  probes?: Probes;
  compiled?: Compiled;
  overhead?: Overhead;
  nonfinite?: NonFinite;
  dropped?: Dropped;
  /**
   * Mean size of the tensors frames of the last steps.
   */
  bytes_per_step?: number;
  viewers?: number;
  /**
   * Ranks that are attached now.
   */
  producers?: number[];
  recording?: Recording;
  /**
   * Sentences for the user, such as 'The hub was restarted at step 812'.
   */
  warnings?: string[];
  /**
   * Every training process that was heard of, by rank.
   */
  ranks?: RankState[];
  /**
   * What has come so far, by stream; one that is not here has no rows.
   */
  streams?: {
    [k: string]: StreamStatus;
  };
  budget?: Budget;
  /**
   * By name, settings and state of instruments beside those whose state has members of its own here.
   */
  instruments?: {
    [k: string]: {
      [k: string]: unknown;
    };
  };

  /**
   * Steps that perturbations have touched so far in this run.
   */
  perturbed_steps?: number;
  /**
   * Forward passes inside of steps and outside of a phase so far that were without gradients, or in evaluation mode and never backpropagated: no training, and not traced. Absent where there were none.
   */
  left_out_passes?: number;
  /**
   * Micro-batches of the last training step in which they were counted: one in which tensors were traced, or the second of a run that traces none. Absent before, and where what is compiled does not show them.
   */
  micro_batches?: number;
  /**
   * Steps that the perturbation that is armed now has touched so far; absent when none is.
   */
  armed_steps?: number;
}

/**
 * Whether every installed probe fired in the last traced step.
 */
export interface Probes {
  fired: number;
  expected: number;
  /**
   * Names such as 'MLP1_mat_mul layer 3', at most 50.
   */
  missing: string[];
  /**
   * Why, each reason with those of the missing that it holds of. Absent where all fired.
   */
  reasons?: SilentProbes[];
}

/**
 * Probes that did not fire for one reason.
 */
export interface SilentProbes {
  /**
   * Such as 'its module was not called in this step'.
   */
  reason: string;
  missing: string[];
}

/**
 * Code with probes that torch.compile has compiled since tracing began.
 */
export interface Compiled {
  /**
   * How often any was compiled.
   */
  times: number;
  /**
   * How many of these times it had been compiled already, as for another length of sequences. A change of what is traced is no such time.
   */
  again: number;
}

/**
 * What tracing costs by its own clocks, as per cent of step time, with a 95 % interval: in the training process and in the hub's. Processor time of the hub and of the thread that sends need not make a step longer.
 */
export interface Overhead {
  percent: number;
  low: number;
  high: number;
  /**
   * Part of percent: time that the training thread spent inside of the tracer.
   */
  training?: number;
  /**
   * Part of percent: CPU time of the thread that sends.
   */
  producer?: number;
  /**
   * Part of percent: CPU time of the hub's process, without what records. Absent where no hub adds it.
   */
  hub?: number;
  /**
   * Part of percent: CPU time of the thread that records. Absent where no hub adds it.
   */
  recorder?: number;
}

/**
 * Non-finite entries of traced tensors seen so far and where the first one was.
 */
export interface NonFinite {
  count: number;
  first?: {
    step: number;
    layer: number;
    flag: string;
  };

  /**
   * The same of the stream moments: non-finite values of whole tensors at the steps that are logged. Absent: there were none.
   */
  moments?: {
    count: number;
    first: {
      step: number;
      stat: string;
      name: string;
    };
  };
}

/**
 * Rows that did not arrive somewhere, by where they were given up.
 */
export interface Dropped {
  /**
   * Rows that the tracer gave up because its queue was full.
   */
  producer: number;
  /**
   * Rows that this viewer was not sent because it was slow; a newer row of the same flag and layer came instead.
   */
  viewer: number;
  /**
   * Rows that the recording lacks, but for those given up to stay within its bound.
   */
  recorder: number;
}

/**
 * State of the recording; no path crosses the wire.
 */
export interface Recording {
  state: 'off' | 'on' | 'failed' | 'closed';
  bytes?: number;
  /**
   * What it may take while it is written: its oldest steps are given up for newer ones. Absent: no bound.
   */
  limit_bytes?: number;
  /**
   * What went wrong, when failed; when on, what did and is over, or that old steps are given up.
   */
  message?: string;
  /**
   * Ranges of steps that the recording lacks.
   */
  missing_steps?: StepSpan[];
}

/**
 * How one training process is.
 */
export interface RankState {
  rank: number;
  /**
   * Such as 'rank 3 (tp 1, pp 1) on node-2'.
   */
  name?: string;
  state: RankCondition;
  step: number;
  /**
   * Since something was heard of it.
   */
  seconds?: number;
}

/**
 * What has come of one stream so far.
 */
export interface StreamStatus {
  rows: number;
  /**
   * Of all frames together.
   */
  bytes: number;
  first_step?: number | null;
  last_step?: number | null;
  /**
   * Rows that this viewer was not sent because it was slow; status.dropped.viewer is the sum. Absent: none.
   */
  dropped?: number;
  nonfinite?: {
    count: number;
    /**
     * The columns that the policy names, of the first such row.
     */
    first: Record<string, unknown>;
    [k: string]: unknown;
  };
  [k: string]: unknown;
}

/**
 * What tracing costs by comparison of traced and untraced steps in random order, and what was given up to stay inside of the limit.
 */
export interface Budget {
  /**
   * Per cent of step time.
   */
  limit: number;
  /**
   * measuring: too few steps for an answer; over: nothing is left to give up.
   */
  state: 'measuring' | 'inside' | 'over';
  percent?: number;
  low?: number;
  /**
   * 95 % interval.
   */
  high?: number;
  /**
   * Steps compared.
   */
  steps?: number;
  /**
   * Sentences, in the order in which it was given up.
   */
  gave_up: string[];
}

/**
 * Something was refused. The connection stays open unless a close follows.
 */
export interface ErrorMessage {
  type: 'error';
  code: ErrorCode;
  /**
   * One or two sentences: what was expected, what came, what to try.
   */
  message: string;
  /**
   * id of the configure that it answers.
   */
  reply_to?: string;
  /**
   * Dotted path of the field at fault, such as flags.MLP1_mat_mul.compressor.params.reduction.
   */
  field?: string;
  /**
   * Column of the fault inside an expression, counted from 1.
   */
  column?: number;
  expected?: string;
  got?: string;
}

/**
 * Either side ends on purpose: a producer that finished training, a hub that shuts down, a viewer that leaves.
 */
export interface Goodbye {
  type: 'goodbye';
  reason: 'finished' | 'shutdown' | 'leaving';
  message?: string;
}

/**
 * Viewer to hub, hub to the producer that leads: have the model write text. Answered by generating, or by an error with the id.
 */
export interface Generate {
  type: 'generate';
  /**
   * Chosen by the viewer; the answer carries it. The hub adds a prefix towards the producer.
   */
  id: string;
  request: GenerateRequest;
  by?: Peer;
}

/**
 * What the model is to write, and what is to be kept of it.
 */
export interface GenerateRequest {
  /**
   * Texts to go on from.
   */
  prompts: string[];
  /**
   * Tokens to write, at most; 64 when absent. 0 only reads the prompts.
   */
  tokens?: number;
  /**
   * Logits are divided by it; 1 when absent. 0 always takes the most probable token.
   */
  temperature?: number;
  /**
   * Draw from the k most probable tokens only; 0, and absent, from all.
   */
  top_k?: number;
  /**
   * Draw from the fewest most probable tokens whose probabilities reach p together; 1, and absent, from all.
   */
  top_p?: number;
  /**
   * The same seed draws the same tokens; 0 when absent.
   */
  seed?: number;
  /**
   * Texts for each prompt; 1 when absent.
   */
  samples?: number;
  /**
   * A sequence ends once its new text has one of these in it.
   */
  stop?: string[];
  /**
   * A sequence ends after one of these tokens; the tokenizer's end of text when absent.
   */
  stop_tokens?: number[];
  /**
   * Candidates to keep of each position; 20 when absent.
   */
  candidates?: number;
  /**
   * Also trace attention probabilities, in the layers that the flag RawAttentionScore_mat_mul asks for, all when it is off. Where the model computes attention without giving them it is switched to an implementation that does, for this generation.
   */
  attention?: boolean;
  /**
   * Candidates to read from each layer's hidden state (logit lens); 0, and absent, none.
   */
  lens?: number;
  /**
   * Write the text twice, without and with this perturbation, and say what it changed. Needs perturb among controls. phases and steps are not read: it lasts as long as the generation.
   */
  perturb?: Perturb | null;
  /**
   * Repeat the perturbation with other settings, and say of each what it changed.
   */
  sweep?: Sweep | null;
}

/**
 * The perturbation of a request, repeated with one thing of it set differently each time. It must have one site.
 */
export interface Sweep {
  /**
   * What is varied: the parameter coefficient (of a bit flip its rate), the layers, or the site.
   */
  over: 'coefficient' | 'layers' | 'site';
  /**
   * Numbers for coefficient, texts such as '0-3' for layers, names for site.
   */
  values: (number | string)[];
}

/**
 * Viewer to hub, hub to the producer that leads: end a generation that waits or runs. Answered by generating, or by an error.
 */
export interface Cancel {
  type: 'cancel';
  id: string;
  generation: number;
}

/**
 * Producer to hub, hub to the viewer that asked: the generation's number. How it goes is told by the stream generations.
 */
export interface Generating {
  type: 'generating';
  id: string;
  generation: number;
  /**
   * The clean one beside it, where there is a perturbation.
   */
  control?: number;
}
