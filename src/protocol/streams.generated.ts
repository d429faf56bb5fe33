// Generated from protocol/streams.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type { DeclaredPolicy } from './messages.generated';

/** Arrow type of a column. */
export type FieldType =
  'int64' | 'int32' | 'utf8' | 'list<int32>' | 'list<float32>' | 'list<utf8>' | 'float64';

/** Name of a stream that this version knows. */
export type StreamName =
  | 'tensors'
  | 'moments'
  | 'scalars'
  | 'alarms'
  | 'spans'
  | 'generations'
  | 'tokens'
  | 'lens'
  | 'effects'
  | 'audit';

/** One column of a stream. */
export interface IStreamField {
  readonly name: string;
  readonly type: FieldType;
  readonly doc?: string;
  readonly absent?: string;
}

/** One stream: what a row is, its columns in order, and how every room treats it. */
export interface IStreamInfo {
  readonly title: string;
  readonly doc?: string;
  readonly instrument?: string;
  readonly policy: Readonly<DeclaredPolicy>;
  readonly fields: readonly IStreamField[];
}

/** Every stream by name. */
export const STREAMS: Readonly<Record<StreamName, IStreamInfo>> = {
  tensors: {
    title: 'Traced tensors',
    doc: 'One row is one traced tensor (or one named part of it) after compression.',
    instrument: 'tensors',
    policy: {
      keep: 'newest',
      drop: { order: 1, covered_first: true },
      identity: ['flag', 'part', 'layer', 'rank'],
      newer: 'step',
      memory_bytes: 536870912,
      page_bytes: 33554432,
      row_bytes: 216,
      shape: 'shape',
      replay_order: 2,
      ask: {
        flag: 'equal',
        part: 'equal',
        phase: 'equal',
        pass: 'equal',
        rank: 'equal_or_lowest',
        layer: 'ranges',
        compression_error: 'newest_finite',
        compressor: 'peaks'
      },
      nonfinite: { counts: ['nan_count', 'inf_count'], first: ['step', 'layer', 'flag'] },
      packing: { group_rows: 2048 }
    },
    fields: [
      {
        name: 'step',
        type: 'int64',
        doc: 'Training step, counted from 1 as the training loop counts optimizer steps.'
      },
      { name: 'micro_batch', type: 'int32', doc: 'Forward pass within the step, counted from 0.' },
      { name: 'phase', type: 'utf8', doc: 'train, eval or generate.' },
      { name: 'pass', type: 'utf8', doc: 'forward or backward.' },
      { name: 'rank', type: 'int32', doc: 'Global rank of the process that traced it.' },
      {
        name: 'layer',
        type: 'int32',
        doc: "Transformer layer, counted from 0 over the whole model as in layers.0; -1 for what is no layer's, the embedding (InputTokens)."
      },
      { name: 'flag', type: 'utf8', doc: 'Trace point by name, such as MLP1_mat_mul.' },
      {
        name: 'part',
        type: 'utf8',
        doc: 'Named part of the tensor (q, k, v; gate, up; ids, positions), or empty for the whole.'
      },
      {
        name: 'compressor',
        type: 'utf8',
        doc: "Canonical text of the compressor, such as Tile(tiles=96, reduction='mean')."
      },
      {
        name: 'source_shape',
        type: 'list<int32>',
        doc: 'Shape of the whole tensor in the [B, S, *] order before any selection.'
      },
      {
        name: 'shape',
        type: 'list<int32>',
        doc: 'Shape of values, row-major; its first axis is the samples that were kept out of B.'
      },
      {
        name: 'values',
        type: 'list<float32>',
        doc: 'The compressed tensor, flat. Non-finite values are data.'
      },
      {
        name: 'labels',
        type: 'list<utf8>',
        doc: 'Text of each entry of values where there is one (InputTokens with a tokenizer), else empty.'
      },
      {
        name: 'nan_count',
        type: 'int64',
        doc: 'NaN entries of the whole tensor; where the next columns do not know it, of what was traced, before compression.'
      },
      { name: 'inf_count', type: 'int64', doc: 'Infinite entries, counted in the same way.' },
      {
        name: 'compression_error',
        type: 'float64',
        doc: "Error of what the compressor kept, as a fraction of the tensor's root mean square: 0 is exact, 1 is as if nothing had been kept. NaN where it was not measured.",
        absent: 'nan'
      },
      {
        name: 'count',
        type: 'float64',
        doc: 'Finite values of the whole tensor, all samples and positions, before compression and before any selection; the next six are over them. NaN where it is not known: a foreign hub, an old recording, token ids.',
        absent: 'nan'
      },
      {
        name: 'mean',
        type: 'float64',
        doc: 'Mean of the finite values of the whole tensor; NaN where there are none, or it is not known.',
        absent: 'nan'
      },
      { name: 'm2', type: 'float64', doc: 'Sum of their squared deviations from the mean.', absent: 'nan' },
      { name: 'm3', type: 'float64', doc: 'Sum of their cubed deviations from the mean.', absent: 'nan' },
      {
        name: 'm4',
        type: 'float64',
        doc: 'Sum of their deviations from the mean to the fourth power.',
        absent: 'nan'
      },
      {
        name: 'min',
        type: 'float64',
        doc: 'Least finite value of the whole tensor; NaN where there is none, or it is not known.',
        absent: 'nan'
      },
      {
        name: 'max',
        type: 'float64',
        doc: 'Greatest finite value of the whole tensor; NaN where there is none, or it is not known.',
        absent: 'nan'
      }
    ]
  },
  moments: {
    title: 'Moments',
    doc: 'One row is the statistics of one tensor at one step: count, mean and central moments of its finite values, which merge exactly over any grouping.',
    instrument: 'statistics',
    policy: {
      keep: 'newest',
      drop: { order: 2 },
      identity: ['stat', 'name', 'rank'],
      newer: 'step',
      memory_bytes: 134217728,
      page_bytes: 174000000,
      row_bytes: 256,
      replay_order: 3,
      nonfinite: { counts: ['nan_count', 'inf_count'], first: ['step', 'stat', 'name'] },
      packing: {
        group_rows: 524288,
        group_bytes: 67108864,
        null_marks: false,
        dictionary: [
          'step',
          'samples',
          'stat',
          'name',
          'rank',
          'stage',
          'count',
          'rounding',
          'gradient_stage',
          'loss_scale'
        ],
        fast: ['mean', 'm2', 'm3', 'm4', 'min', 'max']
      }
    },
    fields: [
      {
        name: 'step',
        type: 'int64',
        doc: "Training step, counted from 1. Activations and gradients are of this step; parameters are as this step's update left them."
      },
      {
        name: 'samples',
        type: 'int64',
        doc: 'Training samples consumed up to and with this step; -1 where nobody said.'
      },
      { name: 'stat', type: 'utf8', doc: 'What was measured, one of Measured in views.schema.json.' },
      {
        name: 'name',
        type: 'utf8',
        doc: 'Canonical name of the tensor: global layer and expert indices, the same whatever the sharding.'
      },
      { name: 'rank', type: 'int32', doc: 'Global rank that wrote the row; -1 where it is not known.' },
      {
        name: 'stage',
        type: 'int32',
        doc: 'Pipeline stage that holds the tensor; -1 where it is not known.'
      },
      {
        name: 'count',
        type: 'float64',
        doc: 'Finite values that the moments are over; 0 is no data. In rows made of raw sums it counts non-finite values too. Whole, exact up to 2^53.'
      },
      {
        name: 'mean',
        type: 'float64',
        doc: 'Mean of the finite values; NaN where there are none. In rows made of raw sums, non-finite where those were.'
      },
      { name: 'm2', type: 'float64', doc: 'Sum of the squared deviations from the mean.' },
      { name: 'm3', type: 'float64', doc: 'Sum of the cubed deviations from the mean.' },
      { name: 'm4', type: 'float64', doc: 'Sum of the deviations from the mean to the fourth power.' },
      {
        name: 'min',
        type: 'float64',
        doc: 'Least finite value; NaN where it is not known or there is none.'
      },
      {
        name: 'max',
        type: 'float64',
        doc: 'Greatest finite value; NaN where it is not known or there is none.'
      },
      { name: 'nan_count', type: 'float64', doc: 'Values that are NaN; NaN where it is not known.' },
      { name: 'inf_count', type: 'float64', doc: 'Values that are infinite; NaN where it is not known.' },
      {
        name: 'negative_inf_count',
        type: 'float64',
        doc: 'Of the infinite values those that are negative; NaN where it is not known.',
        absent: 'nan'
      },
      {
        name: 'near_zero_count',
        type: 'float64',
        doc: 'Finite values of a size below 1e-8; NaN where it is not known, also where a loss scale was divided out after counting.',
        absent: 'nan'
      },
      {
        name: 'rounding',
        type: 'float64',
        doc: 'Relative rounding of the raw sums that the row was made of: 0 for moments taken in float64, 2^-24 for sums in float32.'
      },
      {
        name: 'gradient_stage',
        type: 'utf8',
        doc: 'Of gradients: pre_clip (unscaled, before clipping), pre_step (as the optimizer took them: clipping may be in them), backward (scale divided out), backward_scaled (a scale may be in them and is not known). Else empty.'
      },
      {
        name: 'loss_scale',
        type: 'float64',
        doc: 'Loss scale that was divided out; 1 where there was none; NaN where one may be in the values and is not known.'
      }
    ]
  },
  scalars: {
    title: 'Scalars',
    doc: 'One row is one number that the training loop or the tracer reported.',
    instrument: 'scalars',
    policy: {
      keep: 'all',
      identity: ['name', 'rank'],
      newer: 'time',
      memory_bytes: 134217728,
      page_bytes: 67108864,
      row_bytes: 64,
      replay_order: 4,
      nonfinite: { values: ['value'], first: ['step', 'name'] }
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Training step, counted from 1.' },
      { name: 'time', type: 'float64', doc: 'Wall clock of the producer, seconds since the epoch.' },
      { name: 'rank', type: 'int32', doc: 'Global rank of the process that reported it.' },
      {
        name: 'name',
        type: 'utf8',
        doc: "loss, held_out_loss, lr, grad_norm, tokens_per_second, megalens_overhead, or any name of the user's."
      },
      { name: 'value', type: 'float64', doc: 'The number. Non-finite values are data.' },
      { name: 'unit', type: 'utf8', doc: 'Unit as shown on an axis (nats/byte, 1/s, %), or empty.' }
    ]
  },
  alarms: {
    title: 'Alarms',
    doc: 'One row is one finding of a rule: what was wrong in which tensor, where and when, and what it should have been.',
    instrument: 'monitor',
    policy: {
      keep: 'all',
      identity: ['rule', 'rank', 'micro_batch', 'stat', 'name', 'statistic'],
      newer: 'step',
      memory_bytes: 67108864,
      page_bytes: 33554432,
      row_bytes: 400,
      replay_order: 5,
      marks_step: false,
      ask: { rule: 'equal', severity: 'equal', rank: 'equal' },
      packing: {
        dictionary: ['rule', 'severity', 'direction', 'stat', 'name', 'statistic', 'sentence', 'samples']
      }
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Training step in which it was wrong, counted from 1.' },
      {
        name: 'time',
        type: 'float64',
        doc: 'Wall clock of the process that judged, seconds since the epoch.'
      },
      {
        name: 'rank',
        type: 'int32',
        doc: 'Global rank on which it was wrong; -1 where it is of no single rank.'
      },
      { name: 'stage', type: 'int32', doc: 'Pipeline stage of that rank; -1 where there are none.' },
      {
        name: 'micro_batch',
        type: 'int32',
        doc: 'Micro-batch in which it was wrong, counted from 0; -1 where it is of the whole step.'
      },
      { name: 'rule', type: 'utf8', doc: 'Name of the rule, such as nonfinite, jump or dead.' },
      {
        name: 'severity',
        type: 'utf8',
        doc: 'critical (values are lost: the step is spoilt), warning (the training is likely to suffer), or note.'
      },
      {
        name: 'direction',
        type: 'utf8',
        doc: 'Part of the step: parameters, forward, loss, backward, reduction, optimizer or update; compute for all that a rank works in it.'
      },
      {
        name: 'stat',
        type: 'utf8',
        doc: 'What was measured, as in the stream moments (grad, activation, ...); scalar where it is a number of the stream scalars, span where it is a time of the stream spans.'
      },
      { name: 'name', type: 'utf8', doc: 'Canonical name of the tensor, or the name of the scalar.' },
      {
        name: 'statistic',
        type: 'utf8',
        doc: 'What of it was wrong: rms, nan_count, max_exponent, value, ...'
      },
      { name: 'value', type: 'float64', doc: 'The number that was found. Non-finite values are data.' },
      {
        name: 'expected',
        type: 'float64',
        doc: 'What it should have been, or the limit that it passed; NaN where no number says it.'
      },
      { name: 'sentence', type: 'utf8', doc: 'What it means, for people.' },
      {
        name: 'place',
        type: 'int64',
        doc: 'Place in the order in which the computation of the step ran, over all ranks, stages and micro-batches: of the alarms of one step the lowest came first.'
      },
      {
        name: 'samples',
        type: 'utf8',
        doc: 'Ids of the training samples of that step as JSON, where the training script said them; else empty.'
      }
    ]
  },
  spans: {
    title: 'Spans',
    doc: 'One row is one stretch of time on one rank: a phase of a step, a layer, an operation, a collective, a message; or the sum of several of one kind.',
    instrument: 'timeline',
    policy: {
      keep: 'newest',
      drop: { order: 3 },
      identity: ['rank', 'kind', 'name', 'chunk', 'micro_batch', 'sequence'],
      newer: 'step',
      memory_bytes: 134217728,
      page_bytes: 67108864,
      row_bytes: 160,
      replay_order: 6,
      marks_step: false,
      ask: { kind: 'equal', rank: 'equal', stage: 'equal' },
      packing: { dictionary: ['kind', 'name', 'group', 'device'] }
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Training step, counted from 1.' },
      { name: 'rank', type: 'int32', doc: 'Global rank whose time it is.' },
      { name: 'stage', type: 'int32', doc: 'Pipeline stage of that rank; -1 where there are none.' },
      {
        name: 'chunk',
        type: 'int32',
        doc: 'Model chunk of the stage, counted from 0; -1 where it is of none.'
      },
      {
        name: 'micro_batch',
        type: 'int32',
        doc: 'Micro-batch, counted from 0 within step and chunk; -1 where it is of none.'
      },
      {
        name: 'kind',
        type: 'utf8',
        doc: 'step, forward, backward, wgrad, optimizer, data, checkpoint, collective, send, receive or user.'
      },
      {
        name: 'name',
        type: 'utf8',
        doc: "Path of the module, name of the operation or the collective (all_reduce), or the user's own; empty for a whole phase."
      },
      { name: 'start', type: 'int64', doc: "When it began, ns of the rank's own clock." },
      {
        name: 'end',
        type: 'int64',
        doc: 'When it ended, by the same clock; of a sum, its beginning and all that it sums.'
      },
      {
        name: 'count',
        type: 'int32',
        doc: 'How many spans it is: 1, or more where those of one kind and step are summed.'
      },
      {
        name: 'blocked',
        type: 'int64',
        doc: 'ns of it in which the rank did nothing else: all of it, or of an asynchronous collective or message the time in wait().'
      },
      {
        name: 'bytes',
        type: 'int64',
        doc: 'Bytes that a collective or a message moves, of its larger side; 0 where it is none.'
      },
      {
        name: 'group',
        type: 'utf8',
        doc: 'Global ranks of its process group as range text (0-3,8); empty where it is of none.'
      },
      {
        name: 'peer',
        type: 'int32',
        doc: 'The other rank of a send or a receive, or the root of a collective that has one; -1 where there is none.'
      },
      {
        name: 'sequence',
        type: 'int64',
        doc: 'Number of the collective in its group, of the message from its sender to its receiver, counted from 0 over the run; -1 where it is not known.'
      },
      {
        name: 'device',
        type: 'utf8',
        doc: "What worked: cpu, or a device such as cuda:0, whose times were put on the rank's clock."
      },
      {
        name: 'clock',
        type: 'int64',
        doc: 'Which clock the times are of: ranks with one number, those of one machine, read the same. 0 where that is not known.'
      }
    ]
  },
  generations: {
    title: 'Generations',
    doc: 'One row is a generation that came into another state: queued, running, finished, cancelled, failed. The newest row of a number says how it stands.',
    instrument: 'generation',
    policy: {
      keep: 'all',
      identity: ['generation'],
      newer: 'time',
      memory_bytes: 67108864,
      page_bytes: 33554432,
      row_bytes: 400,
      replay_order: 7,
      marks_step: false,
      ask: { generation: 'equal', state: 'equal' },
      packing: { dictionary: ['state', 'who', 'request', 'message'] }
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Step that began last when the state changed.' },
      { name: 'time', type: 'float64', doc: "Seconds since the epoch, the producer's clock." },
      { name: 'generation', type: 'int64', doc: 'Number of the generation in its run, counted from 1.' },
      { name: 'state', type: 'utf8', doc: 'queued, running, finished, cancelled or failed.' },
      { name: 'who', type: 'utf8', doc: 'Who asked for it.' },
      { name: 'place', type: 'int32', doc: 'Place in the queue, counted from 1; 0 when it does not wait.' },
      {
        name: 'control',
        type: 'int64',
        doc: 'Of a generation under a perturbation the number of the one without it and with the same seed; 0 where there is none.'
      },
      {
        name: 'sequences',
        type: 'int32',
        doc: 'Sequences of the batch: prompts times samples. 0 before it runs.'
      },
      {
        name: 'padded',
        type: 'int32',
        doc: 'Positions of the longest prompt, to which the others are padded on the left. 0 before it runs.'
      },
      { name: 'first_step', type: 'int64', doc: 'First step whose tensors are of it; -1 before it runs.' },
      { name: 'last_step', type: 'int64', doc: 'Last step so far.' },
      { name: 'tokens', type: 'int64', doc: 'Tokens generated so far, over all sequences.' },
      { name: 'seconds', type: 'float64', doc: 'Seconds that it ran so far.' },
      {
        name: 'request',
        type: 'utf8',
        doc: 'What was asked for, complete, as the JSON of GenerateRequest; empty in later rows than the first.'
      },
      {
        name: 'message',
        type: 'utf8',
        doc: 'Why it failed, or what was done differently from what was asked, in sentences; empty where there is nothing to say.'
      }
    ]
  },
  tokens: {
    title: 'Tokens',
    doc: 'One row is one position of a generated sequence: a token of the prompt, or one that the model wrote, and the distribution that it came from.',
    instrument: 'generation',
    policy: {
      keep: 'newest',
      hub_bytes: 67108864,
      drop: { order: 5 },
      identity: ['generation', 'sequence', 'position'],
      newer: 'step',
      memory_bytes: 134217728,
      page_bytes: 67108864,
      row_bytes: 600,
      replay_order: 8,
      marks_step: false,
      ask: { generation: 'equal', sequence: 'equal', position: 'equal' },
      packing: { dictionary: ['generation', 'sequence', 'kind', 'text', 'piece'] }
    },
    fields: [
      {
        name: 'step',
        type: 'int64',
        doc: "Step whose forward pass gave the distribution; of a prompt's tokens the step that read the prompt."
      },
      { name: 'generation', type: 'int64', doc: 'Number of the generation.' },
      {
        name: 'sequence',
        type: 'int32',
        doc: 'Row of the batch, counted from 0; samples of one prompt are neighbours.'
      },
      {
        name: 'position',
        type: 'int32',
        doc: 'Position in the sequence, counted from 0 at the first token of the prompt; padding has none.'
      },
      { name: 'kind', type: 'utf8', doc: 'prompt or generated.' },
      { name: 'id', type: 'int64', doc: 'Token id.' },
      {
        name: 'text',
        type: 'utf8',
        doc: 'What the token adds to the text. Empty while its bytes are no whole character; the token that completes the character has all of it.'
      },
      {
        name: 'piece',
        type: 'utf8',
        doc: 'The token by itself, bytes that are no whole character as <0xE2>.'
      },
      {
        name: 'logit',
        type: 'float64',
        doc: 'Its logit, as the model gave it; NaN for position 0 of a prompt, which nothing predicts.'
      },
      {
        name: 'probability',
        type: 'float64',
        doc: 'Softmax of the logits at this token, at temperature 1 and over the whole vocabulary; NaN as logit.'
      },
      {
        name: 'sampled_probability',
        type: 'float64',
        doc: 'Its probability after temperature, top-k and top-p: what was drawn from. NaN for tokens of the prompt.'
      },
      {
        name: 'rank',
        type: 'int32',
        doc: 'Tokens of the vocabulary with a higher logit; 0 is the most probable one. -1 for position 0 of a prompt.'
      },
      {
        name: 'entropy',
        type: 'float64',
        doc: 'Entropy of the distribution at temperature 1, nats; NaN for position 0 of a prompt.'
      },
      { name: 'candidate_ids', type: 'list<int32>', doc: 'The most probable tokens, most probable first.' },
      { name: 'candidate_texts', type: 'list<utf8>', doc: 'Each of them by itself, as piece.' },
      { name: 'candidate_logits', type: 'list<float32>', doc: 'Their logits.' },
      {
        name: 'candidate_probabilities',
        type: 'list<float32>',
        doc: 'Their probabilities at temperature 1.'
      },
      {
        name: 'candidate_sampled',
        type: 'list<float32>',
        doc: 'Their probabilities after temperature, top-k and top-p; 0 where they were cut off. Empty for tokens of the prompt.'
      },
      {
        name: 'tensor_step',
        type: 'int64',
        doc: 'Step of the tensors rows that hold what the model computed of this token as its input; -1 where it was not read.'
      },
      { name: 'tensor_pass', type: 'int32', doc: 'micro_batch of these rows.' },
      {
        name: 'tensor_offset',
        type: 'int32',
        doc: 'Place on their position axis; their batch row is the sequence.'
      }
    ]
  },
  lens: {
    title: 'Logit lens',
    doc: "One row is what one layer's hidden state at one position would predict, read through the model's own final norm and output layer.",
    instrument: 'generation',
    policy: {
      keep: 'newest',
      hub_bytes: 33554432,
      drop: { order: 4 },
      identity: ['generation', 'sequence', 'position', 'layer'],
      newer: 'step',
      memory_bytes: 134217728,
      page_bytes: 67108864,
      row_bytes: 300,
      replay_order: 9,
      marks_step: false,
      ask: { generation: 'equal', sequence: 'equal', layer: 'ranges' }
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Step whose forward pass gave it.' },
      { name: 'generation', type: 'int64', doc: 'Number of the generation.' },
      { name: 'sequence', type: 'int32', doc: 'Row of the batch, counted from 0.' },
      { name: 'position', type: 'int32', doc: 'Position of the token that was read.' },
      { name: 'layer', type: 'int32', doc: 'Layer whose output was read, counted from 0.' },
      { name: 'ids', type: 'list<int32>', doc: 'The most probable next tokens, most probable first.' },
      { name: 'texts', type: 'list<utf8>', doc: 'Each of them by itself.' },
      { name: 'probabilities', type: 'list<float32>', doc: 'Their probabilities.' },
      {
        name: 'token',
        type: 'int64',
        doc: 'Id of the token that stands at the next position in the end; -1 where there is none.'
      },
      {
        name: 'token_rank',
        type: 'int32',
        doc: 'Its rank here: 0 is the most probable. -1 where there is none.'
      },
      { name: 'token_probability', type: 'float64', doc: 'Its probability here; NaN where there is none.' },
      { name: 'entropy', type: 'float64', doc: 'Entropy of the distribution, nats.' }
    ]
  },
  effects: {
    title: 'Effects of a perturbation',
    doc: "One row is what a perturbation changed against its clean control: at one position, or over a sequence (position -1); of the logits (layer -1), or of a layer's hidden states.",
    instrument: 'generation',
    policy: {
      keep: 'newest',
      hub_bytes: 33554432,
      drop: { order: 6 },
      identity: ['generation', 'point', 'sequence', 'position', 'layer'],
      newer: 'step',
      memory_bytes: 67108864,
      page_bytes: 33554432,
      row_bytes: 140,
      replay_order: 10,
      marks_step: false,
      ask: { generation: 'equal', point: 'equal', sequence: 'equal', layer: 'ranges' },
      packing: { dictionary: ['generation', 'setting', 'sequence', 'layer'] }
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Step that began last when it was computed.' },
      { name: 'generation', type: 'int64', doc: 'Number of the generation under the perturbation.' },
      { name: 'control', type: 'int64', doc: 'Number of the clean one.' },
      { name: 'sequence', type: 'int32', doc: 'Row of the batch, counted from 0.' },
      { name: 'position', type: 'int32', doc: 'Position of the token that was read; -1 over all of them.' },
      { name: 'layer', type: 'int32', doc: 'Layer whose hidden states are compared; -1 for the logits.' },
      { name: 'point', type: 'int32', doc: 'Point of the sweep, counted from 0; -1 where nothing is swept.' },
      {
        name: 'setting',
        type: 'utf8',
        doc: 'What the sweep set at this point, as text; empty without a sweep.'
      },
      { name: 'value', type: 'float64', doc: 'The same as a number; NaN where it is none.' },
      {
        name: 'kl',
        type: 'float64',
        doc: 'Kullback-Leibler divergence of the perturbed from the clean distribution of the next token, both reading the clean text, nats: sum of p_clean log(p_clean / p_perturbed). Its mean where position is -1. NaN for a layer.'
      },
      {
        name: 'changed',
        type: 'float64',
        doc: '1 where the most probable next token is another one, 0 where it is not; the share of positions where position is -1. NaN for a layer.'
      },
      {
        name: 'distance',
        type: 'float64',
        doc: "L2 distance of the perturbed hidden state from the clean one over the clean one's L2 norm; its mean where position is -1. NaN for the logits."
      },
      {
        name: 'divergence',
        type: 'int64',
        doc: 'First position at which the text that was written under the perturbation differs from the clean one; -1 where it does not, and in rows of a position or a layer.'
      }
    ]
  },
  audit: {
    title: 'Audit',
    doc: 'One row is one event of the run: who changed what and the step at which it took effect, who came and went, what the training saved.',
    instrument: 'hub',
    policy: {
      keep: 'all',
      identity: ['action'],
      newer: 'time',
      memory_bytes: 134217728,
      row_bytes: 256,
      replay_order: 1,
      marks_step: false
    },
    fields: [
      { name: 'step', type: 'int64', doc: 'Step at which it took effect; -1 where no step is meant.' },
      {
        name: 'time',
        type: 'float64',
        doc: "Wall clock of the hub, seconds since the epoch; of the producer where the row is a producer's own (checkpoint, drop)."
      },
      { name: 'who', type: 'utf8', doc: 'Viewer or producer that asked, as it named itself.' },
      {
        name: 'action',
        type: 'utf8',
        doc: 'configure, perturb, disarm, pause, resume, step, budget, connect, announce (a tracer that is connected has learned more), disconnect, checkpoint (the training was saved), drop (what a translation leaves out), warning (a sentence of status.warnings, once).'
      },
      {
        name: 'detail',
        type: 'utf8',
        doc: 'The change as JSON text; of a checkpoint {"name": …}, the last part of its path, or {}; of a warning {"text": …}.'
      }
    ]
  }
};
