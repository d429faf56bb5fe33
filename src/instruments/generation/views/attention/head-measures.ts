import type { IAttentionPiece } from '../../store/attention-rows';
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
