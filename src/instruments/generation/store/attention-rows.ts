import type { IGenerationPass, IGenerationRead, ITokenLocation } from './generation-rows';
import type { ITensorRow } from '../../../store/tensor-data';

/**
 * Attention probabilities of one sequence in one forward pass, as the compressor left them: `[heads,
 * queryBlocks, keyBlocks]` from `start` on in `row.values`.
 */
export interface IAttentionPiece {
  readonly row: ITensorRow;
  /** Of the sequence: place of its first value. */
  readonly start: number;
  readonly heads: number;
  readonly queries: IPieceAxis;
  readonly keys: IPieceAxis;
  /** First and last position whose query is here. */
  readonly positions: readonly [number, number];
}

/** Queries or keys of a piece. */
export interface IPieceAxis {
  /** Of each block the largest probability is here; 1 is every one. A power of two. */
  readonly side: number;
  readonly blocks: number;
  /** Position of the first entry of the first block: below 0 where a shorter prompt is padded. */
  readonly first: number;
  /** Entries that the pass had. */
  readonly length: number;
}

export interface IAttentionRequest {
  readonly sequence: number;
  /** Heads in the order in which they are wanted; all when absent. */
  readonly heads?: readonly number[];
  /** First and last position, both included; all when absent. */
  readonly queries?: readonly [number, number];
  readonly keys?: readonly [number, number];
  /** Cells that either axis may have: beyond, cells are joined further. */
  readonly most?: number;
}

/** An axis of a joined map: equal cells, each of `side` positions. */
export interface IMapAxis {
  /** Position at which the first cell begins; below 0 where its first entries are padding. */
  readonly first: number;
  readonly side: number;
  readonly count: number;
}

/** Attention of one layer over a text, put together from all its passes. */
export interface IAttentionMap {
  /** `[1, heads, queries.count, keys.count]`: each cell's largest probability, NaN if not finite or absent */
  readonly row: ITensorRow;
  readonly queries: IMapAxis;
  readonly keys: IMapAxis;
  /** By cell of any head: 1 where there is nothing: keys after the query, and positions without rows. */
  readonly missing: Uint8Array;
  /** Whether cells hold queries of padding as well, which a block that was kept as a whole may. */
  readonly padded: boolean;
}

/** Whether a recording answered with fewer blocks than it has. */
export const isCoarser = ({ compressor }: Pick<ITensorRow, 'compressor'>): boolean =>
  /^Peaks\(.*\) of /.test(compressor);

/**
 * Blocks along an axis of attention that fit into some bytes.
 * @returns A power of two.
 */
export function peaksWithin(bytes: number, maps: number, prompt: number, written: number): number {
  const sizeOf = (cells: number): number =>
    4 * maps * (Math.min(cells, prompt) ** 2 + written * Math.min(cells, prompt + written));
  let cells = MOST_PEAKS;
  while (cells > LEAST_PEAKS && sizeOf(cells) > bytes) {
    cells /= 2;
  }
  return cells;
}

const [LEAST_PEAKS, MOST_PEAKS] = [16, 1024];

/** The positions of a row of attention in a text without padding: its queries are the last of its keys. */
export function locationsInRow(row: ITensorRow): ITokenLocation[] {
  const { step, microBatch } = row;
  const [queries, keys] = lengthsOf(row);
  return Array.from({ length: queries }, (_, offset) => ({
    position: keys - queries + offset,
    step,
    pass: microBatch,
    offset
  }));
}

/** The pieces of one layer by first position, a sequence's own. */
export function attentionPieces(read: IGenerationRead, layer: number, sequence: number): IAttentionPiece[] {
  return read.passes.flatMap(pass => {
    const row = pass.rows.get(layer);
    const piece = row && pieceOf(row, pass, sequence);
    return piece ? [piece] : [];
  });
}

/**
 * Put the attention of one layer together. Queries and keys are counted in positions of the sequence, padding
 * is cut off. Where passes were kept in blocks of different sides, cells are as large as the largest block,
 * and hold the largest probability within them.
 * @returns Null where there is nothing of it.
 */
export function joinAttention(
  read: IGenerationRead,
  layer: number,
  request: IAttentionRequest
): IAttentionMap | null {
  const last = read.count - 1;
  const queries = within(request.queries ?? [0, last], last);
  const keys = within(request.keys ?? [0, last], last);
  const pieces = attentionPieces(read, layer, request.sequence).filter(
    ({ positions }) => positions[0] <= queries[1] && positions[1] >= queries[0]
  );
  const newest = pieces[pieces.length - 1];
  if (newest === undefined) {
    return null;
  }
  const most = request.most ?? Infinity;
  const axes = {
    queries: axisOf(
      pieces.map(each => each.queries),
      queries,
      most
    ),
    keys: axisOf(
      pieces.map(each => each.keys),
      keys,
      most
    )
  };
  const heads = request.heads ?? Array.from({ length: newest.heads }, (_, head) => head);
  const map = new JoinedMap(axes, heads);
  pieces.forEach(piece => map.add(piece, queries));
  return map.finished(newest.row, read.count);
}

class JoinedMap {
  constructor(
    private readonly axes: { readonly queries: IMapAxis; readonly keys: IMapAxis },
    private readonly heads: readonly number[]
  ) {
    const cells = axes.queries.count * axes.keys.count;
    this.values = new Float32Array(heads.length * cells).fill(-Infinity);
    this.missing = new Uint8Array(cells).fill(1);
  }

  add(piece: IAttentionPiece, wanted: readonly [number, number]): void {
    const { queries, positions } = piece;
    const [from, to] = [Math.max(positions[0], wanted[0]), Math.min(positions[1], wanted[1])];
    const block = (position: number): number => Math.floor((position - queries.first) / queries.side);
    for (let at = Math.max(0, block(from)); at <= Math.min(queries.blocks - 1, block(to)); at += 1) {
      const begin = queries.first + at * queries.side;
      this.padded ||= begin < 0;
      const rows = cellsOf(this.axes.queries, Math.max(begin, from), Math.min(begin + queries.side - 1, to));
      for (let row = rows[0]; row <= rows[1]; row += 1) {
        this.addRow(piece, at, row);
      }
    }
  }

  finished(row: ITensorRow, positions: number): IAttentionMap {
    const { queries, keys } = this.axes;
    const shape = [1, this.heads.length, queries.count, keys.count];
    if (!this.looksAhead) {
      this.mask();
    }
    const cells = this.missing.length;
    for (let at = 0; at < this.values.length; at += 1) {
      this.values[at] = this.missing[at % cells] === 1 ? NaN : (this.values[at] ?? NaN);
    }
    return {
      queries,
      keys,
      missing: this.missing,
      padded: this.padded,
      row: {
        ...row,
        microBatch: 0,
        values: this.values,
        shape,
        sourceShape: [1, this.heads.length, positions, positions],
        labels: [],
        compressionError: NaN,
        whole: null
      }
    };
  }

  /** Take in one row of blocks of every head. */
  private addRow(piece: IAttentionPiece, block: number, to: number): void {
    const { keys, queries } = piece;
    const { first, side, count } = this.axes.keys;
    // Queries of padding look anywhere.
    const isPadded = queries.first + block * queries.side < 0;
    const ahead = Math.floor((this.lastQuery(to) - first) / side);
    for (let at = 0; at < keys.blocks; at += 1) {
      const begin = Math.max(0, keys.first + at * keys.side);
      const end = keys.first + Math.min((at + 1) * keys.side, keys.length) - 1;
      const last = Math.min(count - 1, Math.floor((end - first) / side));
      for (let cell = Math.max(0, Math.floor((begin - first) / side)); cell <= last; cell += 1) {
        this.missing[to * count + cell] = 0;
        this.take(piece, block * keys.blocks + at, to * count + cell, cell > ahead && !isPadded);
      }
    }
  }

  private take(
    { row, start, heads, queries, keys }: IAttentionPiece,
    at: number,
    to: number,
    ahead: boolean
  ): void {
    const [size, cells] = [queries.blocks * keys.blocks, this.missing.length];
    for (let index = 0; index < this.heads.length; index += 1) {
      const head = this.heads[index] ?? 0;
      const value = head < heads ? (row.values[start + head * size + at] ?? NaN) : NaN;
      const out = index * cells + to;
      // What is not a number stays to be seen: nothing is greater.
      if (value > (this.values[out] ?? NaN) || value !== value) {
        this.values[out] = value;
      }
      this.looksAhead ||= ahead && value !== 0;
    }
  }

  /** Keys after every query of a cell have no probability in a model that looks back only. */
  private mask(): void {
    const { queries, keys } = this.axes;
    for (let row = 0; row < queries.count; row += 1) {
      const first = Math.max(0, Math.floor((this.lastQuery(row) - keys.first) / keys.side) + 1);
      for (let cell = first; cell < keys.count; cell += 1) {
        this.missing[row * keys.count + cell] = 1;
      }
    }
  }

  private lastQuery(row: number): number {
    const { first, side } = this.axes.queries;
    return first + (row + 1) * side - 1;
  }

  private readonly values: Float32Array;
  private readonly missing: Uint8Array;
  private looksAhead = false;
  private padded = false;
}

/** Whether a row holds queries × keys, all of them or the largest of blocks: other compressors mix keys. */
export function isAttentionRow({ compressor, shape, values }: ITensorRow): boolean {
  return shape.length === 4 && values.length > 0 && /^(NoOp|Peaks)\b/.test(compressor);
}

function pieceOf(
  row: ITensorRow,
  { positions, shift }: IGenerationPass,
  sequence: number
): IAttentionPiece | null {
  const [samples = 0, heads = 0, queryBlocks = 0, keyBlocks = 0] = row.shape;
  if (!isAttentionRow(row) || sequence >= samples) {
    return null;
  }
  const [queries, keys] = lengthsOf(row);
  return {
    row,
    heads,
    positions,
    start: sequence * heads * queryBlocks * keyBlocks,
    queries: { side: sideOf(queries, queryBlocks), blocks: queryBlocks, first: -shift, length: queries },
    // The last query and the last key are the same token.
    keys: { side: sideOf(keys, keyBlocks), blocks: keyBlocks, first: queries - keys - shift, length: keys }
  };
}

/** Queries and keys of the pass; counted where all were retained, since foreign hubs may misstate shapes. */
function lengthsOf({ compressor, shape, sourceShape }: ITensorRow): [number, number] {
  const [queries = 0, keys = 0] = (compressor.startsWith('Peaks') ? sourceShape : shape).slice(-2);
  return [queries, keys];
}

/** Side, a power of two, of the blocks that a compressor cut an axis into; the last may be shorter. */
function sideOf(length: number, blocks: number): number {
  let side = 1;
  while (blocks > 0 && Math.ceil(length / side) > blocks) {
    side *= 2;
  }
  return side;
}

/** Cells that lie on the blocks of the pieces, as large as the largest of them. */
function axisOf(axes: readonly IPieceAxis[], [from, to]: readonly [number, number], most: number): IMapAxis {
  let [side, first] = [1, 0];
  for (const axis of axes) {
    side = Math.max(side, axis.side);
    first = Math.min(first, axis.first);
  }
  const begin = (): number => first + Math.floor((from - first) / side) * side;
  const count = (): number => Math.floor((to - begin()) / side) + 1;
  while (count() > most) {
    side *= 2;
  }
  return { first: begin(), side, count: count() };
}

/** First and last cell that holds some of a range of positions; none where the last is the smaller. */
function cellsOf({ first, side, count }: IMapAxis, from: number, to: number): [number, number] {
  const cell = (position: number): number => Math.floor((position - first) / side);
  return from > to ? [0, -1] : [Math.max(0, cell(from)), Math.min(count - 1, cell(to))];
}

function within([from, to]: readonly [number, number], last: number): [number, number] {
  return [Math.max(0, from), Math.min(last, to)];
}
