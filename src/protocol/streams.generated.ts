// Generated from protocol/streams.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

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
  | 'memory'
  | 'generations'
  | 'tokens'
  | 'lens'
  | 'effects'
  | 'audit';
