import { byName } from '../../../protocol/records';
import { numberColumn, RowCells } from './generation-rows';
import type { IStreamRows } from '../../../store/row-store';
import type { IRunSource } from '../../../store/source';

/** What a perturbation changed against its clean control: a row of the stream `effects`, see `protocol/streams.json`. */
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
  /** The same as a number; NaN where it is none. */
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
 *
 * @param where - Which rows of it: of one sequence, point or layer.
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
