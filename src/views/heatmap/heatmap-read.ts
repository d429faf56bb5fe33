import type { HeatmapOptions } from '../../protocol/views.generated';
import type { ITensorResult, ITensorRow } from '../../store/source';
import type { ISlice } from './matrix';

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

/** What a heatmap draws, and what is said of how it came. */
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

/** What is asked for of a flag. */
export type HeatmapQuestion = Pick<
  Required<HeatmapOptions>,
  'flag' | 'head' | 'pass' | 'phase' | 'rank' | 'sample'
> & {
  readonly part: string | null;
  readonly layers: readonly number[];
};
