import { own, byName } from '../../../protocol/records';
import type { IStreamRows, RowColumn } from '../../../store/row-store';
import type { IRunSource } from '../../../store/source';
import { numberColumn, RowCells } from './generation-rows';

/** What one layer's hidden state at a position would predict: a row of the stream `lens`. */
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
interface ILensCandidate {
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

/** What a perturbation changed against its clean control: a row of the stream `effects`. */
export interface IEffect {
  readonly sequence: number;
  /** Of the token that was read; -1 over all of them. */
  readonly position: number;
  /** -1 for the logits. */
  readonly layer: number;
  /** Of a sweep, from 0; -1 where nothing is swept. */
  readonly point: number;
  /** What the sweep set, as it was sent. */
  readonly setting: string;
  readonly value: number;
  /** Nats; NaN for a layer. */
  readonly kl: number;
  /** 1 where the most probable next token is another one, or the share of positions; NaN for a layer. */
  readonly changed: number;
  /** Relative L2 distance of hidden states; NaN for the logits. */
  readonly distance: number;
  /** First position at which the text differs; -1 where it does not, and where nobody says. */
  readonly divergence: number;
}

/** The effects of a generation, as far as they are here. */
export interface IEffects {
  /** In the order in which they came. */
  readonly rows: readonly IEffect[];
  /** Number of the clean generation; NaN where nobody says. */
  readonly control: number;
  /** Rows that were given up to stay within memory. */
  readonly evictedRows: number;
}

const NUMBERS = [
  'sequence',
  'position',
  'layer',
  'point',
  'value',
  'kl',
  'changed',
  'distance',
  'divergence'
] as const;

/** Numbers beyond these are none of a model, a text or a sweep: they would make a picture of any size. */
const MOST = { position: 1 << 21, layer: 4096, sequence: 1 << 16, point: 1 << 16 };

/** The effects that rows tell of; rows that tell of no place are left out. */
export function effectsOf(rows: IStreamRows): IEffects {
  const cells = new RowCells(rows);
  const numbers = byName(NUMBERS, name => numberColumn(rows, name));
  const effects = Array.from({ length: rows.length }, (_, at): IEffect => ({
    sequence: numbers.sequence[at] ?? NaN,
    position: numbers.position[at] ?? NaN,
    layer: numbers.layer[at] ?? NaN,
    point: numbers.point[at] ?? NaN,
    setting: cells.text('setting', at),
    value: numbers.value[at] ?? NaN,
    kl: numbers.kl[at] ?? NaN,
    changed: numbers.changed[at] ?? NaN,
    distance: numbers.distance[at] ?? NaN,
    divergence: numbers.divergence[at] ?? NaN
  }));
  return {
    rows: effects.filter(isPlaced),
    control: cells.number('control', rows.length - 1),
    evictedRows: rows.evictedRows
  };
}

/**
 * Read what a perturbation changed.
 * @throws {StoreError} When the run cannot be read.
 */
export async function readEffects(
  source: Pick<IRunSource, 'table'>,
  generation: number,
  where: { readonly layer?: number; readonly point?: number; readonly sequence?: number } = {},
  signal?: AbortSignal
): Promise<IEffects> {
  return effectsOf(await source.table('effects', { where: { ...where, generation } }, signal));
}

function isPlaced({ sequence, position, layer, point }: IEffect): boolean {
  return (
    isWhole(position, -1, MOST.position) &&
    isWhole(layer, -1, MOST.layer) &&
    isWhole(point, -1, MOST.point) &&
    isWhole(sequence, 0, MOST.sequence)
  );
}

const isWhole = (value: number, low: number, high: number): boolean =>
  Number.isInteger(value) && value >= low && value < high;
