import { ColorScale } from '../charts/color-scale';
import { lowMagnitude } from '../charts/decades';
import { formatInteger, formatNumber } from '../charts/format';
import { legend } from '../charts/legend';
import { toPicture, toDataUrl } from '../charts/picture';
import { paint, type IMatrix } from '../charts/pixels';
import { unpack } from './half';
import type { LiveChart, Row } from './live-chart';
import type { ILiveView } from './payload';

const WORDS = { lowest: 'lowest', highest: 'highest', notFinite: 'not finite' };

/** The steps of one heatmap: unpacks them as they are asked for, and paints them in the colours of the live views. */
export class Steps {
  constructor(
    private readonly _live: ILiveView,
    private readonly _chart: LiveChart
  ) {}

  /** The matrices that are shown now, by layer. */
  get shown(): ReadonlyMap<number, IMatrix> {
    return this._shown;
  }

  get step(): number {
    return this._live.frames?.[this._at]?.step ?? 0;
  }

  /** Unpack a step and, unless it is in the picture already, draw it. The last one asked for wins. */
  async show(at: number, draw = true): Promise<void> {
    const frame = this._live.frames?.[at];
    if (!frame) {
      return;
    }
    const turn = ++this._turn;
    const matrices = await unpack(frame);
    if (turn !== this._turn) {
      return;
    }
    this._at = at;
    this._shown = matrices;
    if (draw) {
      await this._draw(matrices);
    }
  }

  private async _draw(matrices: ReadonlyMap<number, IMatrix>): Promise<void> {
    const { transform = 'linear' } = this._live;
    const own = this._live.scale === 'own' && matrices.size > 1;
    const low = (parts: readonly IMatrix[]): number =>
      transform === 'log' ? lowMagnitude(parts.map(matrix => matrix.values)) : NaN;
    const all = [...matrices.values()];
    const shared = new ColorScale(extentOf(all), transform, low(all));
    const scaled = [...matrices].map(([layer, matrix]) => ({
      layer,
      matrix,
      scale: own ? new ColorScale(extentOf([matrix]), transform, low([matrix])) : shared
    }));
    const bad = [...matrices.values()].some(({ values }) => !Array.from(values).every(Number.isFinite));
    const strip = legend(scaled[0]?.scale ?? shared, bad, WORDS, own);
    this._chart.rows(
      'pictures',
      scaled.map(({ layer, matrix, scale }) => picture(layer, matrix, scale))
    );
    this._chart.rows('legend', strip.rows);
    this._chart.set({
      ...strip.params,
      headers: Object.fromEntries(scaled.map(({ layer, scale }) => [layer, header(layer, scale, own)]))
    });
    await this._chart.settled();
  }

  private _shown: ReadonlyMap<number, IMatrix> = new Map();
  private _at = -1;
  private _turn = 0;
}

/** Say which steps the page holds: `step 400`, and that others were left out. */
export function stepWords(step: number): string {
  return `step ${formatInteger(step)}`;
}

function picture(layer: number, matrix: IMatrix, scale: ColorScale): Row {
  const pixels = paint(matrix, scale);
  const url = toPicture(pixels).image?.toDataURL('image/png') ?? toDataUrl(pixels);
  return { layer, url, x: -0.5, x2: matrix.columns - 0.5, y: -0.5, y2: matrix.rows - 0.5 };
}

function header(layer: number, scale: ColorScale, own: boolean): string {
  const [low, high] = scale.domain;
  return own && !scale.empty
    ? `layer ${layer}, ${formatNumber(low, 3)} to ${formatNumber(high, 3)}`
    : `layer ${layer}`;
}

function extentOf(matrices: readonly IMatrix[]): readonly [number, number] | null {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of matrices) {
    for (let cell = 0; cell < values.length; cell++) {
      const value = values[cell] ?? NaN;
      if (Number.isFinite(value)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  return low <= high ? [low, high] : null;
}
