import { ArrowColumns } from '../protocol/arrow-columns';
import { badFrame } from '../protocol/frame';
import type { IMissingSteps, IKept, ITensorRow } from './tensor-data';

/**
 * A trend as the server sent it.
 * @throws ProtocolError `bad-frame`.
 */
export function trendOfBytes(bytes: Uint8Array): ITrendAnswer {
  const { columns, about } = answerOf(bytes);
  const [layer, step, value, bad] = ['layer', 'step', 'value', 'nonfinite'].map(name => columns.floats(name));
  const half = columns.table.names.includes('half') ? columns.floats('half') : undefined;
  const lines = linesIn(columns, layer).map(({ key, from, to, starts }): ILayerLine => {
    const cut = (column: Float64Array | undefined): Float64Array =>
      (column ?? new Float64Array(0)).slice(from, to);
    return {
      layer: key,
      steps: cut(step),
      values: cut(value),
      nonFinite: cut(bad),
      ...(half ? { half: cut(half) } : {}),
      starts
    };
  });
  const newest = isObject(about['newest']) ? about['newest'] : null;
  return {
    lines,
    total: Number(about['total']) || 0,
    missing: missingOf(about['missing']),
    kept: about['kept'] === true,
    compressors: listOf(about['compressors']).map(String),
    ranks: listOf(about['ranks']).map(Number),
    newest: newest && {
      compressor: String(newest['compressor']),
      shape: listOf(newest['shape']).map(Number),
      sourceShape: listOf(newest['source_shape']).map(Number)
    },
    units: Number(about['units']) || 0,
    evictedRows: 0
  };
}

/**
 * Scalars as the server sent them.
 * @throws ProtocolError `bad-frame`.
 */
export function scalarsOfBytes(bytes: Uint8Array): IScalarAnswer {
  const { columns, about } = answerOf(bytes);
  const [line, step, time, value] = ['line', 'step', 'time', 'value'].map(name => columns.floats(name));
  const named = listOf(about['lines']).map(each => (isObject(each) ? each : {}));
  const units = new Map(
    Object.entries(isObject(about['units']) ? about['units'] : {}).map(([name, unit]) => [name, String(unit)])
  );
  const lines = linesIn(columns, line).map(({ key, from, to, starts }): IScalarLine => {
    const name = String(named[key]?.['name']);
    return {
      name,
      unit: units.get(name) ?? '',
      steps: (step ?? new Float64Array(0)).slice(from, to),
      times: (time ?? new Float64Array(0)).slice(from, to),
      values: (value ?? new Float64Array(0)).slice(from, to),
      starts,
      total: Number(named[key]?.['total']) || 0
    };
  });
  return { lines, units: Object.fromEntries(units), missing: missingOf(about['missing']) };
}

interface IStretch {
  readonly key: number;
  readonly from: number;
  readonly to: number;
  readonly starts: number[];
}

/** The rows of each line, which follow one another. */
function linesIn(columns: ArrowColumns, keys: Float64Array | undefined): IStretch[] {
  const start = columns.floats('start');
  const found: IStretch[] = [];
  for (let from = 0; keys !== undefined && from < keys.length;) {
    const key = keys[from] as number;
    let to = from;
    const starts: number[] = [];
    for (; to < keys.length && keys[to] === key; to += 1) {
      if (start[to] === 1) {
        starts.push(to - from);
      }
    }
    found.push({ key, from, to, starts });
    from = to;
  }
  return found;
}

function answerOf(bytes: Uint8Array): { columns: ArrowColumns; about: Record<string, unknown> } {
  const columns = new ArrowColumns(bytes);
  try {
    const about: unknown = JSON.parse(columns.table.schema.metadata?.get('megalens') ?? '');
    if (isObject(about)) {
      return { columns, about };
    }
  } catch {
    // Said below.
  }
  throw badFrame('The lines that the server sent say nothing of themselves.');
}

function missingOf(value: unknown): IMissingSteps[] {
  return listOf(value).map(span => {
    const [first = NaN, last = NaN] = listOf(span).map(Number);
    return { first, last, why: 'The recording lacks rows of these steps.' };
  });
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A statistic of one layer over steps. */
export interface ILayerLine {
  readonly layer: number;
  readonly steps: Float64Array;
  /** NaN where nothing was finite. */
  readonly values: Float64Array;
  /** Values of the tensors that were not finite. */
  readonly nonFinite: Float64Array;
  /** Half the width of the band about each value, NaN where there is too little; absent if not asked for. */
  readonly half?: Float64Array;
  /**
   * Places, ascending, at which the line begins anew: what lies before such a point is not joined with it,
   * because steps are missing between them or because compressor, samples or sampling changed. The first
   * point is none.
   */
  readonly starts: readonly number[];
}

/** What words and controls must know of the tensors behind a trend. */
export type ITrendTensor = Pick<ITensorRow, 'compressor' | 'shape' | 'sourceShape'>;

/** Lines of a trend, as many points as were wanted. */
export interface ITrendAnswer {
  readonly lines: readonly ILayerLine[];
  /** Steps that there are of what was asked, thinned out or not. */
  readonly total: number;
  /** Steps that are known to be missing. */
  readonly missing: readonly IMissingSteps[];
  /** Whether a statistic of compressed values stands in for that of the whole tensor, which is unknown. */
  readonly kept: boolean;
  /** Compressors of the rows, in the order of their steps. */
  readonly compressors: readonly string[];
  /** Ranks of the rows, ascending. */
  readonly ranks: readonly number[];
  /** Of the newest row; null where there is none. */
  readonly newest: ITrendTensor | null;
  /** Positions and samples that a band is over at the newest step; 0 where none was asked for. */
  readonly units: number;
  /** Rows of which nothing is left anywhere that can be asked. */
  readonly evictedRows: number;
  /** Set where not every row was there to choose from: only every n-th step is here, with this n. */
  readonly sampledEvery?: number;
  /** Of sources that keep a bounded history: what they still have. */
  readonly memory?: IKept;
}

/** A scalar over steps. All arrays have one length. */
export interface IScalarLine {
  readonly name: string;
  readonly unit: string;
  /** Ascending. */
  readonly steps: Float64Array;
  readonly times: Float64Array;
  readonly values: Float64Array;
  /** As in `ILayerLine`. */
  readonly starts: readonly number[];
  /** Points that there are, thinned out or not. */
  readonly total: number;
}

/** Scalars as lines, and what else there is. */
export interface IScalarAnswer {
  /** In the order of the names that were asked for; those without a point are left out. */
  readonly lines: readonly IScalarLine[];
  readonly units: Readonly<Record<string, string>>;
  readonly missing: readonly IMissingSteps[];
  /** Points between minima and maxima that nobody has any more; absent is none. */
  readonly thinned?: number;
}
