import { type IMatrix, ColorScale, lowMagnitude, type IColorLook, type Transform } from '../../charts';
import type { Hello } from '../../protocol/messages.generated';
import type { ITensorRow, ITensorResult } from '../../store/tensor-data';
import type { HeatmapOptions } from '../../protocol/views.generated';
import { extentOf, nearestIndex } from '../shared/scale';
import { lastAxis, readCompressor, tokenText } from '../shared/describe';

/** One sample (and head) of a traced tensor as a picture sees it. */
export interface ISlice extends IMatrix {
  readonly values: Float32Array;
  /** Least and greatest finite value, or null when there is none. */
  readonly extent: readonly [number, number] | null;
  readonly nonFinite: number;
}

/** How the axes of a row lie in the picture. */
interface IAxes {
  /** Names of the horizontal and the vertical axis. */
  readonly x: string;
  readonly y: string;
  readonly heads: number;
  readonly samples: number;
  /** Whether the tensor's last axis runs down the picture instead of across. */
  readonly transposed: boolean;
}

/**
 * Say how a row is laid out: positions run to the right; attention has queries downwards and keys to the
 * right.
 *
 * @param axes Axis names of one sample from hello, such as ['position', 'feature'].
 * @param last Name of the last axis after compression.
 */
function axesOf(row: ITensorRow, axes: readonly string[], last: string): IAxes {
  const dimensions = row.shape.slice(1);
  const names = [...axes.slice(0, -1), last].slice(-Math.max(1, dimensions.length));
  const heads = dimensions.slice(0, -2).reduce((product, size) => product * size, 1);
  const first = names.length > 1 ? (names[names.length - 2] ?? '') : '';
  const samples = row.shape[0] ?? 1;
  if (dimensions.length < 2) {
    return { x: axes[0] ?? last, y: '', heads, samples, transposed: false };
  }
  return first === 'query'
    ? { x: last, y: first, heads, samples, transposed: false }
    : { x: first, y: last, heads, samples, transposed: true };
}

/**
 * A slice of which some cells are not there: they are drawn as nothing, and are not among those that are not
 * finite.
 */
const maskedSlice = (slice: ISlice, missing: Uint8Array | undefined): ISlice =>
  missing ? { ...slice, missing, nonFinite: unfinishedIn(slice.values, missing) } : slice;

/** How many of the cells that are there are not finite. */
function unfinishedIn(values: Float32Array, missing?: Uint8Array): number {
  let count = 0;
  for (let cell = 0; cell < values.length; cell++) {
    const value = values[cell] ?? NaN;
    // Only finite numbers leave nothing of themselves.
    count += value - value !== 0 && missing?.[cell] !== 1 ? 1 : 0;
  }
  return count;
}

/** The value of a cell; null where there is none. */
export function valueIn({ values, missing }: ISlice, cell: number): number | null {
  return missing?.[cell] === 1 ? null : (values[cell] ?? NaN);
}

/** Cut one sample and head out of a row. Values are copied only where the axes must be swapped. */
function sliceOf(row: ITensorRow, axes: IAxes, sample: number, head: number): ISlice {
  const dimensions = row.shape.slice(1);
  const [down = 1, across = 1] = dimensions.length < 2 ? [1, dimensions[0] ?? 1] : dimensions.slice(-2);
  const start = (sample * axes.heads + head) * down * across;
  const cut = row.values.subarray(start, start + down * across);
  const values = axes.transposed ? transpose(cut, down, across) : cut;
  const [rows, columns] = axes.transposed ? [across, down] : [down, across];
  return { rows, columns, values, extent: extentOf([values]), nonFinite: unfinishedIn(values) };
}

/** Cells of a block that is transposed at a time: small enough that both sides of it stay in the cache. */
const BLOCK = 32;

function transpose(values: Float32Array, down: number, across: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let top = 0; top < down; top += BLOCK) {
    const bottom = Math.min(top + BLOCK, down);
    for (let left = 0; left < across; left += BLOCK) {
      const right = Math.min(left + BLOCK, across);
      for (let column = left; column < right; column++) {
        for (let row = top; row < bottom; row++) {
          out[column * down + row] = values[row * across + column] ?? NaN;
        }
      }
    }
  }
  return out;
}

/** The text of a generation, whose rows were put together from all its passes. */
export interface ITextShown {
  readonly generation: number;
  /** Row of the batch, and how many there are. */
  readonly sequence: number;
  readonly sequences: number;
  /** Heads that there are; only the drawn one is in the rows. */
  readonly heads: number;
  /** Positions of which nothing came, and those that the model never read. */
  readonly missing: number;
  readonly unread: number;
  /** Cells of attention that hold the largest of several probabilities: how many, down and across. */
  readonly block: readonly [number, number] | null;
  /** Which cells of a slice are not there. */
  maskOf(row: ITensorRow, slice: ISlice): Uint8Array | undefined;
}

/** What a heatmap draws, and how it came about. */
export interface IHeatmapRead {
  /** One for each layer, layers ascending. */
  readonly rows: readonly [ITensorRow, ...ITensorRow[]];
  readonly step: number;
  /** Sample and head, as the rows count them. */
  readonly sample: number;
  readonly head: number;
  /** Text of each position; empty where it is not known. */
  readonly tokens: readonly string[];
  readonly result: Omit<ITensorResult, 'rows'>;
  /** The newest rows whose compression error was measured. */
  readonly measured: readonly ITensorRow[];
  /** Absent where one step is drawn. */
  readonly text?: ITextShown;
}

export type HeatmapQuestion = Pick<
  Required<HeatmapOptions>,
  'flag' | 'head' | 'pass' | 'phase' | 'rank' | 'sample'
> & {
  readonly part: string | null;
  readonly layers: readonly number[];
};

/** One layer's slice at the step that is drawn. */
export interface ILayer {
  readonly layer: number;
  readonly row: ITensorRow;
  readonly slice: ISlice;
  readonly scale: ColorScale;
}

export interface IShown {
  readonly step: number;
  readonly axes: IAxes;
  /** Sample and head that are drawn, within what there is. */
  readonly sample: number;
  readonly head: number;
  readonly layers: readonly ILayer[];
  /** Least and greatest finite value of all layers, or null. */
  readonly extent: readonly [number, number] | null;
  /** Non-finite cells of all layers. */
  readonly nonFinite: number;
  /** Text of each position; empty when it is not traced. */
  readonly tokens: readonly string[];
  /** Set where a whole text is drawn, not a step. */
  readonly text?: ITextShown | undefined;
}

export interface IHeatmapRequest {
  readonly step: number;
  readonly sample: number;
  readonly head: number;
  readonly scale: 'shared' | 'own';
  readonly transform: Transform;
  /** Axis names of one sample from hello. */
  readonly axes: readonly string[];
  readonly tokens: readonly string[];
  readonly look?: IColorLook;
  readonly text?: ITextShown | undefined;
}

/**
 * Cut and scale rows for drawing.
 *
 * @param rows One row for each layer, layers ascending; at least one.
 * @param before What was shown last: slices of the same rows are taken from it. Only these stay in memory
 * with the store's rows.
 */
export function shapeHeatmap(
  rows: readonly [ITensorRow, ...ITensorRow[]],
  wish: IHeatmapRequest,
  before: IShown | null = null
): IShown {
  const [first] = rows;
  const axes = axesOf(
    first,
    wish.axes,
    lastAxis(first.compressor, wish.axes[wish.axes.length - 1] ?? 'feature')
  );
  const sample = Math.min(wish.sample, axes.samples - 1);
  const head = Math.min(wish.head, axes.heads - 1);
  const same =
    before?.sample === sample && before.head === head && before.axes.transposed === axes.transposed;
  const known = new Map(same ? before.layers.map(({ row, slice }) => [row, slice]) : []);
  const cut = (row: ITensorRow): ISlice => {
    const slice = sliceOf(row, axes, sample, head);
    return maskedSlice(slice, wish.text?.maskOf(row, slice));
  };
  const slices = rows.map(row => ({ row, slice: known.get(row) ?? cut(row) }));
  const extent = extentOf(slices.flatMap(({ slice }) => (slice.extent ? [slice.extent] : [])));
  const low = (parts: readonly ISlice[]): number =>
    wish.transform === 'log' ? lowMagnitude(parts.map(slice => slice.values)) : NaN;
  const shared = new ColorScale(extent, wish.transform, low(slices.map(each => each.slice)), wish.look);
  const blocks = wish.text ? wish.text.block !== null : isInBlocks(first);
  return {
    step: wish.step,
    axes: blocks ? { ...axes, x: `${axes.x} block`, y: `${axes.y} block` } : axes,
    sample,
    head,
    extent,
    // A block is no one token.
    tokens: blocks ? [] : wish.tokens,
    text: wish.text,
    nonFinite: slices.reduce((sum, each) => sum + each.slice.nonFinite, 0),
    layers: slices.map(({ row, slice }) => ({
      layer: row.layer,
      row,
      slice,
      scale:
        wish.scale === 'own' ? new ColorScale(slice.extent, wish.transform, low([slice]), wish.look) : shared
    }))
  };
}

/** Whether a cell stands for a block of several queries and keys. */
function isInBlocks({ compressor, shape, sourceShape }: ITensorRow): boolean {
  const last = shape.length - 1;
  return readCompressor(compressor).name === 'Peaks' && (shape[last] ?? 0) < (sourceShape[last] ?? 0);
}

/** Keep the first micro-batch, lowest rank and first call of each layer, layers ascending. */
export function firstOfEach(rows: readonly ITensorRow[]): ITensorRow[] {
  const first = new Map<number, ITensorRow>();
  for (const row of rows) {
    const known = first.get(row.layer);
    const earlier =
      known === undefined ||
      row.microBatch < known.microBatch ||
      (row.microBatch === known.microBatch &&
        (row.rank < known.rank || (row.rank === known.rank && row.call < known.call)));
    if (earlier) {
      first.set(row.layer, row);
    }
  }
  return [...first.values()].sort((a, b) => a.layer - b.layer);
}

/**
 * Return the wanted step or the one nearest to it; the newest when null is wanted; null where there is none.
 */
export function nearestStep(steps: readonly number[], wanted: number | null): number | null {
  const at = wanted === null ? steps.length - 1 : nearestIndex(steps, wanted);
  return steps[at] ?? null;
}

/**
 * Return the row of token texts that belongs to a rank's data: its own, or that of the same data-parallel
 * replica.
 */
export function tokenRow(
  rows: readonly ITensorRow[],
  rank: number,
  hello: Hello | null
): ITensorRow | undefined {
  const named = rows.filter(row => row.labels.length > 0);
  const replica = (of: number): number | undefined =>
    hello?.layout?.ranks?.find(coordinate => coordinate.rank === of)?.dp;
  return (
    named.find(row => row.rank === rank) ??
    named.find(row => replica(row.rank) === replica(rank)) ??
    (replica(rank) === undefined ? named[0] : undefined)
  );
}

/** Texts of one sample's positions out of a row of token ids. */
export function tokensOf(row: ITensorRow | undefined, sample: number): string[] {
  if (row === undefined) {
    return [];
  }
  const length = row.shape[1] ?? row.labels.length;
  const at = Math.min(sample, (row.shape[0] ?? 1) - 1) * length;
  return row.labels.slice(at, at + length).map(tokenText);
}
