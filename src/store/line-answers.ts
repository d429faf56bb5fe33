import type { ILinesQuery } from '../client/run-reader';
import { ArrowColumns } from '../protocol/arrow-columns';
import { badFrame } from '../protocol/frame';
import { rangesText } from '../protocol/ranges';
import type {
  ILayerLine,
  IScalarAnswer,
  IScalarLine,
  IScalarQuery,
  ITrendAnswer,
  ITrendQuery
} from './line-data';
import type { IMissingSteps } from './tensor-data';

/** A question for a trend as it is asked of the server. */
export function trendAsked(query: ITrendQuery): ILinesQuery {
  const { flag, part, phase, pass, rank, layers, steps, statistic, selection, points } = query;
  return {
    flag,
    part,
    phase,
    pass,
    rank,
    layers: layers && rangesText(layers),
    first: steps?.[0],
    last: steps?.[1],
    statistic,
    positions: selection?.positions,
    vector: selection?.vector,
    interval: selection?.interval,
    points
  };
}

/** A question for scalars as it is asked of the server. */
export function scalarsAsked({ names, steps, points }: IScalarQuery): ILinesQuery {
  return { names: names ? JSON.stringify(names) : undefined, first: steps?.[0], last: steps?.[1], points };
}

/**
 * A trend as the server sent it.
 *
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
 *
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
    return { first, last, why: 'The recording lacks these steps.' };
  });
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
