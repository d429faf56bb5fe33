// Generated from protocol/streams.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

/** Arrow type of a column. */
export type FieldType =
  'int64' | 'int32' | 'utf8' | 'list<int32>' | 'list<float32>' | 'list<utf8>' | 'float64';

/** Name of a stream that this version knows. */
export type StreamName = 'tensors' | 'scalars' | 'audit';

/** One column of a stream. */
export interface IStreamField {
  readonly name: string;
  readonly type: FieldType;
  readonly doc: string;
}

/** One stream: what a row is, and its columns in order. */
export interface IStreamInfo {
  readonly title: string;
  readonly doc: string;
  readonly fields: readonly IStreamField[];
}

/** Every stream by name. */
export const STREAMS: Readonly<Record<StreamName, IStreamInfo>> = {
  tensors: {
    title: 'Traced tensors',
    doc: 'One row is one traced tensor (or one named part of it) after compression.',
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
        doc: 'Global transformer layer, counted from 1; 0 is the embedding (InputTokens).'
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
        doc: 'NaN entries in what was traced, counted before compression.'
      },
      {
        name: 'inf_count',
        type: 'int64',
        doc: 'Infinite entries in what was traced, counted before compression.'
      },
      {
        name: 'compression_error',
        type: 'float64',
        doc: "Error of what the compressor kept, as a fraction of the tensor's root mean square: 0 is exact, 1 is as if nothing had been kept. NaN where it was not measured."
      }
    ]
  },
  scalars: {
    title: 'Scalars',
    doc: 'One row is one number that the training loop or the tracer reported.',
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
  audit: {
    title: 'Audit',
    doc: 'One row is one event that changed what the run traces: who, what, and the step at which it took effect.',
    fields: [
      { name: 'step', type: 'int64', doc: 'Step at which it took effect; -1 where no step is meant.' },
      { name: 'time', type: 'float64', doc: 'Wall clock of the hub, seconds since the epoch.' },
      { name: 'who', type: 'utf8', doc: 'Viewer or producer that asked, as it named itself.' },
      {
        name: 'action',
        type: 'utf8',
        doc: 'configure, perturb, disarm, pause, resume, step, budget, connect, disconnect.'
      },
      { name: 'detail', type: 'utf8', doc: 'The change as JSON text.' }
    ]
  }
};
