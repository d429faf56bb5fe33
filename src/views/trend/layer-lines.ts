import type { ILayerTrend } from '../../aggregate';
import { heightOf, type ITrace } from '../shared/trace';

/** The lines of a trend as they are drawn: which one is near a point, and where one runs. */
export class LayerLines {
  /**
   * @param series One line each.
   * @param y Values at the bottom and at the top of the plot.
   * @param scale As the template's `yScale`.
   */
  constructor(
    private readonly series: readonly ILayerTrend[],
    private readonly y: readonly [number, number],
    private readonly scale: string
  ) {}

  /**
   * Return the layer whose line is nearest to a point, or null where none is near.
   *
   * @param step One of the steps.
   * @param linear The point's place on the y axis as if that were linear and grew downwards, as charts give it.
   * @param reach Part of the plot's height that still is near.
   */
  nearest(step: number, linear: number, reach: number): number | null {
    const part = (linear - this.y[0]) / (this.y[1] - this.y[0]);
    let [best, least]: [number | null, number] = [null, reach];
    for (const { layer, steps, values } of this.series) {
      const away = Math.abs(heightOf(values[steps.indexOf(step)] ?? NaN, this.y, this.scale) - part);
      if (away <= least) {
        [best, least] = [layer, away];
      }
    }
    return best;
  }

  /** Return where a layer's line runs; nothing where it has none. */
  trace(layer: number, color: string): ITrace[] {
    const found = this.series.find(each => each.layer === layer);
    return found
      ? [
          {
            color,
            points: found.steps.map(
              (step, at) => [step, heightOf(found.values[at] ?? NaN, this.y, this.scale)] as const
            )
          }
        ]
      : [];
  }
}
