import type { Spec } from 'vega';

/** Rows kept by column: a third of the size of a list of objects. */
export type Columns = Readonly<Record<string, readonly unknown[] | IDistinct>>;

/** A column of few distinct values: these, and the place of each row's. */
export interface IDistinct {
  readonly distinct: readonly unknown[];
  readonly places: readonly number[];
}

/** One step of a heatmap: every layer's matrix, row-major, as half floats, deflated, base64. */
export interface IFrameData {
  readonly step: number;
  /** Power of two that the values were multiplied by before they became half floats. */
  readonly exponent: number;
  readonly matrices: readonly { readonly layer: number; readonly rows: number; readonly columns: number }[];
  readonly data: string;
}

/** One view as the page carries it. Written by `megalens/report/live.py`. */
export interface ILiveView {
  /** Id of the figure in the page. */
  readonly id: string;
  readonly template: 'heatmap' | 'trend-lines' | 'trend-heatmap' | 'scalars' | 'moment-lines' | 'moment-map';
  /** Compiled Vega, with empty datasets. */
  readonly spec: Spec;
  readonly datasets: Readonly<Record<string, Columns>>;
  /** What the data cover, for zooming. */
  readonly extent: { readonly x: readonly [number, number]; readonly y: readonly [number, number] };
  /** Names of the axes, for tooltips. */
  readonly axes: { readonly x: string; readonly y: string };
  /** Heatmaps: how values become colours, and the steps that are here. */
  readonly scale?: 'shared' | 'own';
  readonly transform?: 'linear' | 'log';
  readonly tokens?: readonly string[];
  readonly frames?: readonly IFrameData[];
  /** Layer × step cells of a trend, or those of groups: `layer` numbers them, `name` names them. */
  readonly cells?: Columns;
}

/** All that the page carries for its live charts. */
export interface IPayload {
  readonly format: 1;
  /** Ordered layer colours. */
  readonly layers: { readonly light: readonly string[]; readonly dark: readonly string[] };
  readonly views: readonly ILiveView[];
}

/** Turn columns into rows. */
export function rowsOf(columns: Columns): Record<string, unknown>[] {
  const plain = Object.entries(columns).map(
    ([name, column]) =>
      [name, 'places' in column ? column.places.map(place => column.distinct[place]) : column] as const
  );
  const length = plain[0]?.[1].length ?? 0;
  return Array.from({ length }, (_, at) =>
    Object.fromEntries(plain.map(([name, values]) => [name, values[at]]))
  );
}
