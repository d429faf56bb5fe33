import type { IMatrix } from '../../../../charts';
import type { IAttentionMap, IAttentionRequest, IMapAxis, IAttentionPiece } from '../../store/attention-rows';
import { joinAttention } from '../../store/attention-rows';
import type { IAttentionText } from './attention-text';
import type { ITensorRow } from '../../../../store/tensor-data';

/**
 * What distinguishes a head: mean entropy of a query's probabilities (nats), mean of how many tokens its keys
 * lie from it, mean probability of the first token, mean probability of the token before the query.
 */
export type HeadMeasure = 'before' | 'distance' | 'entropy' | 'first';

/** A measure of one head over the queries that are here. */
export interface IHeadMeasure {
  /** NaN without queries. If `isBound`, a lower bound of entropy and distance, an upper one of `first`. */
  readonly value: number;
  /** Queries that it is of. */
  readonly queries: number;
  /** Queries left out because they hold something that is not finite. */
  readonly unfinished: number;
  /** Whether some probabilities are known as the largest of a block only. */
  readonly isBound: boolean;
}

/** Sums over the queries of a piece, by head. */
interface ISums {
  readonly value: Float64Array;
  readonly queries: Float64Array;
  readonly unfinished: Float64Array;
}

/** Values of one query, or of several that were kept as a block. */
interface IQueryRow {
  readonly values: Float32Array;
  readonly keys: IAttentionPiece['keys'];
  /** First and last query. */
  readonly queries: readonly [number, number];
}

/** What was summed already: the rows of a run do not change. */
const known = new WeakMap<ITensorRow, Map<string, ISums>>();

/** Return a measure of each head of a layer. `before` is NaN where it is not known exactly. */
export function headMeasures(pieces: readonly IAttentionPiece[], measure: HeadMeasure): IHeadMeasure[] {
  const heads = pieces.reduce((most, each) => Math.max(most, each.heads), 0);
  const isBound = pieces.some(isBlocked);
  const sums = pieces.map(piece => sumsOf(piece, measure));
  return Array.from({ length: heads }, (_, head) => {
    const sum = (part: keyof ISums): number =>
      sums.reduce((total, each) => total + (each[part][head] ?? 0), 0);
    const queries = sum('queries');
    return {
      value: queries > 0 && !(isBound && measure === 'before') ? sum('value') / queries : NaN,
      queries,
      unfinished: sum('unfinished'),
      isBound
    };
  });
}

const isBlocked = ({ queries, keys }: IAttentionPiece): boolean => queries.side > 1 || keys.side > 1;

function sumsOf(piece: IAttentionPiece, measure: HeadMeasure): ISums {
  const ofRow = known.get(piece.row) ?? new Map<string, ISums>();
  known.set(piece.row, ofRow);
  const key = `${measure} ${piece.start} ${piece.positions.join()}`;
  const sums = ofRow.get(key) ?? summed(piece, (isBlocked(piece) ? BOUNDS : EXACT)[measure]);
  ofRow.set(key, sums);
  return sums;
}

function summed(piece: IAttentionPiece, measure: (row: IQueryRow) => number): ISums {
  const { row, heads, start, queries, keys, positions } = piece;
  const [value, counted, unfinished] = [0, 0, 0].map(() => new Float64Array(heads)) as [
    Float64Array,
    Float64Array,
    Float64Array
  ];
  for (let at = 0; at < heads * queries.blocks; at += 1) {
    const head = Math.floor(at / queries.blocks);
    const begin = queries.first + (at % queries.blocks) * queries.side;
    const [first, last] = [Math.max(begin, positions[0]), Math.min(begin + queries.side - 1, positions[1])];
    const count = last - first + 1;
    if (count < 1) {
      continue;
    }
    const from = start + at * keys.blocks;
    const values = row.values.subarray(from, from + keys.blocks);
    const found = measure({ values, keys, queries: [first, last] });
    const into = Number.isFinite(found) ? counted : unfinished;
    into[head] = (into[head] ?? 0) + count;
    value[head] = (value[head] ?? 0) + (Number.isFinite(found) ? count * found : 0);
  }
  return { value, queries: counted, unfinished };
}

const shareAt = ({ values, keys }: IQueryRow, position: number): number =>
  position < Math.max(0, keys.first) ? 0 : (values[position - keys.first] ?? 0);

/** Of one query whose probabilities are all known. Not finite where one of them is not. */
const EXACT: Readonly<Record<HeadMeasure, (row: IQueryRow) => number>> = {
  entropy({ values, keys }) {
    let sum = 0;
    for (let at = Math.max(0, -keys.first); at < values.length; at += 1) {
      const share = values[at] ?? NaN;
      sum -= share === 0 ? 0 : share * Math.log(share);
    }
    return sum;
  },
  distance({ values, keys, queries: [query] }) {
    let sum = 0;
    for (let at = Math.max(0, -keys.first); at < values.length; at += 1) {
      sum += (values[at] ?? NaN) * Math.abs(query - keys.first - at);
    }
    return sum;
  },
  first: row => shareAt(row, 0),
  before: row => shareAt(row, row.queries[0] - 1)
};

/** A block of keys: their number, the distance in tokens of the nearest, and the largest probability. */
interface IKeyBlock {
  readonly size: number;
  readonly near: number;
  readonly most: number;
}

/**
 * What a measure is at least, and the share on the first token at most, where only the largest probability of
 * a block is known. No key of a block has more: the entropy is least where as few keys as possible share the
 * whole, the distance where the nearest ones do.
 */
const BOUNDS: Readonly<Record<HeadMeasure, (row: IQueryRow) => number>> = {
  entropy(row) {
    let [sum, left] = [0, 1];
    for (const { most, size } of blocksOf(row).sort((a, b) => b.most - a.most)) {
      if (!Number.isFinite(most)) {
        return NaN;
      }
      const full = most > 0 ? Math.min(size, Math.floor(left / most)) : 0;
      const rest = full < size ? Math.min(most, left - full * most) : 0;
      sum -= (full > 0 ? full * most * Math.log(most) : 0) + (rest > 0 ? rest * Math.log(rest) : 0);
      left -= full * most + rest;
    }
    return sum;
  },
  distance(row) {
    let [sum, left] = [0, 1];
    for (const { most, near, size } of blocksOf(row).sort((a, b) => a.near - b.near)) {
      const share = Math.min(left, size * most);
      sum += share * near;
      left -= share;
    }
    return sum;
  },
  first: row => (row.keys.first > 0 ? 0 : (blocksOf(row)[0]?.most ?? 0)),
  before: () => NaN
};

function blocksOf({ values, keys, queries: [first, last] }: IQueryRow): IKeyBlock[] {
  const blocks: IKeyBlock[] = [];
  for (let at = 0; at < values.length; at += 1) {
    const begin = Math.max(0, keys.first + at * keys.side);
    const end = keys.first + Math.min((at + 1) * keys.side, keys.length) - 1;
    if (end >= begin) {
      const near = begin > last ? begin - last : end < first ? first - end : 0;
      blocks.push({ size: end - begin + 1, near, most: values[at] ?? NaN });
    }
  }
  return blocks;
}

/** One head's attention as a picture sees it. */
export interface IHeadMap {
  /** Its place among the pictures, from 0. */
  readonly index: number;
  readonly layer: number;
  readonly head: number;
  readonly map: IAttentionMap;
  readonly cells: IMatrix & { readonly values: Float32Array };
}

/** First and last position of a part of a map. */
export interface IMapWindow {
  readonly queries: readonly [number, number];
  readonly keys: readonly [number, number];
}

export interface IHeadMaps {
  readonly maps: readonly IHeadMap[];
  /** Maps that were asked for and are not drawn, because they would be too many. */
  readonly left: number;
  /** Values of the complete maps, of which this may be a part: the colours are scaled by these. */
  readonly whole: readonly Float32Array[];
  /** Cells that are not finite. */
  readonly nonFinite: number;
  /** What these are of, and which part of it. */
  readonly of: string;
  readonly part: string;
}

/** Most pictures: each is an axis to lay out. */
export const MOST_MAPS = 144;
/** Cells of all pictures together, and of one along an axis at most: a screen has no more pixels for them. */
const MOST_CELLS = 4 << 20;
const [LEAST_ALONG, MOST_ALONG] = [64, 1024];

/**
 * Cut what is here of a text into one map for each layer and head.
 * @param window What is looked at; null is all.
 * @param before What was drawn last: it is taken again where nothing has changed.
 */
export function headMaps(
  text: IAttentionText,
  layers: readonly number[],
  heads: readonly number[],
  window: IMapWindow | null,
  before: IHeadMaps | null
): IHeadMaps {
  const { read, sequence, generation, step } = text;
  const of = JSON.stringify([generation ?? -step, read.version, read.count, sequence, layers, heads]);
  const part = JSON.stringify(window);
  const isSame = before?.of === of;
  if (isSame && before.part === part) {
    return before;
  }
  const asked = layers.length * heads.length;
  const most = mostAlong(Math.min(asked, MOST_MAPS));
  const maps = mapsOf(text, layers, heads, { most, ...window });
  const whole = isSame
    ? before.whole
    : (window === null ? maps : mapsOf(text, layers, heads, { most: LEAST_ALONG })).map(
        ({ cells }) => cells.values
      );
  return {
    maps,
    left: asked - Math.min(asked, MOST_MAPS),
    whole,
    nonFinite: maps.reduce((sum, { cells }) => sum + nonFiniteIn(cells), 0),
    of,
    part
  };
}

function mapsOf(
  { read, sequence }: IAttentionText,
  layers: readonly number[],
  heads: readonly number[],
  request: Omit<IAttentionRequest, 'heads' | 'sequence'>
): IHeadMap[] {
  const maps: IHeadMap[] = [];
  for (const layer of layers.slice(0, Math.ceil(MOST_MAPS / Math.max(1, heads.length)))) {
    const shown = heads.slice(0, MOST_MAPS - maps.length);
    const map = joinAttention(read, layer, { ...request, sequence, heads: shown });
    shown.forEach((head, at) => {
      if (map) {
        maps.push({ index: maps.length, layer, head, map, cells: matrixOf(map, at) });
      }
    });
  }
  return maps;
}

/** The cell of an axis that holds a position. */
export function cellAt({ first, side, count }: IMapAxis, position: number): number {
  return Math.min(count - 1, Math.max(0, Math.floor((position - first) / side)));
}

/** First and last position of a cell, those of padding left out. */
export function positionsOf(
  { first, side }: IMapAxis,
  cell: number,
  count: number
): readonly [number, number] {
  const begin = first + cell * side;
  return [Math.max(0, begin), Math.min(count, begin + side) - 1];
}

export function edgesOf({ first, side }: IMapAxis, cell: number): readonly [number, number] {
  return [first + cell * side - 0.5, first + (cell + 1) * side - 0.5];
}

/** Middles of the cells of an axis, in positions. */
export const middlesOf = ({ first, side, count }: IMapAxis): Float64Array =>
  Float64Array.from({ length: count }, (_, cell) => first + (cell + 0.5) * side - 0.5);

/** The value of a cell; null where there is nothing. */
export function valueAt({ map, cells }: IHeadMap, query: number, key: number): number | null {
  const at = query * map.keys.count + key;
  return map.missing[at] === 1 ? null : (cells.values[at] ?? NaN);
}

function matrixOf(map: IAttentionMap, at: number): IHeadMap['cells'] {
  const [rows, columns] = [map.queries.count, map.keys.count];
  const size = rows * columns;
  return { rows, columns, missing: map.missing, values: map.row.values.subarray(at * size, (at + 1) * size) };
}

function mostAlong(maps: number): number {
  const fits = Math.floor(Math.sqrt(MOST_CELLS / Math.max(1, maps)));
  return Math.min(MOST_ALONG, Math.max(LEAST_ALONG, 2 ** Math.floor(Math.log2(fits))));
}

function nonFiniteIn({ values, missing }: IMatrix): number {
  let count = 0;
  for (let cell = 0; cell < values.length; cell += 1) {
    count += missing?.[cell] !== 1 && !Number.isFinite(values[cell]) ? 1 : 0;
  }
  return count;
}

/** A key of a query, or a block of keys, and the largest probability within it. */
export interface IRankedKey {
  readonly first: number;
  readonly last: number;
  readonly share: number;
}

/** What a query looks at, the largest probability first. */
export interface IRankedQuery {
  /** Queries that share these numbers: one, unless the pass was kept in blocks. */
  readonly queries: readonly [number, number];
  readonly keys: readonly IRankedKey[];
  /** Whether a number is the largest of several probabilities. */
  readonly isBlock: boolean;
}

/**
 * Return what a query looks at, as finely as it was kept: the mean of some heads of some layers; null where
 * there is no row of it.
 */
export function rankedKeys(
  { read, sequence }: Pick<IAttentionText, 'read' | 'sequence'>,
  layers: readonly number[],
  heads: readonly number[],
  query: number
): IRankedQuery | null {
  const maps = layers.flatMap(
    layer => joinAttention(read, layer, { sequence, heads, queries: [query, query] }) ?? []
  );
  const [map] = maps;
  if (map === undefined) {
    return null;
  }
  const keys: IRankedKey[] = [];
  for (let cell = 0; cell < map.keys.count; cell += 1) {
    const [first, last] = positionsOf(map.keys, cell, read.count);
    if (map.missing[cell] !== 1) {
      const shares = maps.flatMap(each =>
        heads.map((_, at) => each.row.values[at * each.keys.count + cellAt(each.keys, first)] ?? NaN)
      );
      keys.push({ first, last, share: shares.reduce((sum, each) => sum + each, 0) / shares.length });
    }
  }
  // What is not finite comes first: it is what is looked for.
  const rank = ({ share }: IRankedKey): number => (Number.isFinite(share) ? share : Infinity);
  return {
    queries: positionsOf(map.queries, 0, read.count),
    keys: keys.sort((a, b) => (rank(a) === rank(b) ? a.first - b.first : rank(b) - rank(a))),
    isBlock: maps.some(each => each.keys.side > 1 || each.queries.side > 1)
  };
}
