import { own } from '../../../protocol/records';
import { numberColumn, RowCells } from './generation-rows';
import type { IStreamRows, RowColumn } from '../../../store/row-store';
import type { IRunSource } from '../../../store/source';

/** What one layer's hidden state at one position would predict: a row of the stream `lens`, see `protocol/streams.json`. */
export interface ILensCell {
  readonly layer: number;
  /** Of the token that was read. */
  readonly position: number;
  /** Most probable first. */
  readonly candidates: readonly ILensCandidate[];
  /** Id of the token that stands at the next position in the end; -1 where there is none. */
  readonly token: number;
  /** Its rank here, from 0; -1 where there is none. */
  readonly rank: number;
  /** Its probability here; NaN where there is none. */
  readonly probability: number;
  /** Of the distribution, nats. */
  readonly entropy: number;
}

/** A next token, and how probable it is. */
export interface ILensCandidate {
  readonly id: number;
  /** As it was sent. */
  readonly text: string;
  readonly probability: number;
}

/** Rows beyond these are no rows of a model: they would make a picture of any size. */
const [MOST_LAYERS, MOST_POSITIONS] = [4096, 1 << 21];

/** The logit lens of one sequence: cells by layer and position. */
export class Lens {
  /** @param rows - Of one generation and one sequence; of rows of the same place the last one counts. */
  constructor(rows: IStreamRows) {
    const [layer, position] = [numberColumn(rows, 'layer'), numberColumn(rows, 'position')];
    const [layers, positions] = [new Set<number>(), new Set<number>()];
    for (let row = 0; row < rows.length; row += 1) {
      const [down, across] = [layer[row] ?? NaN, position[row] ?? NaN];
      if (isWithin(down, MOST_LAYERS) && isWithin(across, MOST_POSITIONS)) {
        this._rows.set(down * MOST_POSITIONS + across, row);
        layers.add(down);
        positions.add(across);
      }
    }
    this.layers = ascending(layers);
    this.positions = ascending(positions);
    this.evictedRows = rows.evictedRows;
    this.token = numberColumn(rows, 'token');
    this.rank = numberColumn(rows, 'token_rank');
    this.probability = numberColumn(rows, 'token_probability');
    this.entropy = numberColumn(rows, 'entropy');
    this._cells = new RowCells(rows);
    this._shares = own(rows.columns, 'probabilities');
  }

  /** Layers that were read, ascending. */
  readonly layers: readonly number[];

  /** Positions that were read, ascending. */
  readonly positions: readonly number[];

  /** Rows that were given up to stay within memory. */
  readonly evictedRows: number;

  /** Numbers of `ILensCell`, by row. */
  readonly token: Float64Array;
  readonly rank: Float64Array;
  readonly probability: Float64Array;
  readonly entropy: Float64Array;

  /** The row of a layer and position; -1 where that was not read. */
  rowAt(layer: number, position: number): number {
    return this._rows.get(layer * MOST_POSITIONS + position) ?? -1;
  }

  /** Probability of the most probable candidate of a row; NaN where it has none. */
  bestOf(row: number): number {
    const shares = this._shares?.[row];
    return typeof shares === 'object' ? Number(shares[0] ?? NaN) : NaN;
  }

  /** What a layer says at a position; null where it was not read. */
  at(layer: number, position: number): ILensCell | null {
    const row = this.rowAt(layer, position);
    if (row < 0) {
      return null;
    }
    const [texts, shares] = ['texts', 'probabilities'].map(name => this._cells.list(name, row));
    return {
      layer,
      position,
      candidates: this._cells.list('ids', row).map((id, at) => ({
        id: Number(id),
        text: String(texts?.[at] ?? ''),
        probability: Number(shares?.[at] ?? NaN)
      })),
      token: this.token[row] ?? NaN,
      rank: this.rank[row] ?? NaN,
      probability: this.probability[row] ?? NaN,
      entropy: this.entropy[row] ?? NaN
    };
  }

  private readonly _cells: RowCells;
  private readonly _shares: RowColumn | undefined;
  private readonly _rows = new Map<number, number>();
}

/**
 * Read the logit lens of a sequence.
 *
 * @throws {StoreError} When the run cannot be read.
 */
export async function readLens(
  source: Pick<IRunSource, 'table'>,
  generation: number,
  sequence: number,
  signal?: AbortSignal
): Promise<Lens> {
  return new Lens(await source.table('lens', { where: { generation, sequence } }, signal));
}

const ascending = (numbers: Iterable<number>): number[] => [...numbers].sort((a, b) => a - b);

const isWithin = (value: number, most: number): boolean =>
  Number.isInteger(value) && value >= 0 && value < most;
