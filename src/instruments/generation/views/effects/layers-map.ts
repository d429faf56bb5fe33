import { ColorScale, formatNumber, lowMagnitude, type Row } from '../../../../charts';
import type { IContent, IMark } from '../../../../views/shared/content';
import { LayerMap, type ILayerPlace } from '../shared/layer-map';
import { layerName } from '../../../../views/shared/layers';
import { extentOf } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/tip';
import type { ITokenWindow } from '../shared/token-axis';
import { comparedName, divergenceRows, nextLines, type IComparedTexts } from './compared-texts';
import { measureWords, RULE_COLOR } from './positions-picture';
import type { ISequenceEffects } from './position-facts';

/** Pixels of a layer. */
const ROW = 16;

/** How far hidden states are from the clean ones, layer × position. */
export class LayersMap extends LayerMap {
  /** Draw a sequence. */
  draw(
    effects: ISequenceEffects,
    texts: IComparedTexts,
    transform: 'linear' | 'log',
    axis: ITokenWindow
  ): Pick<IContent, 'extent' | 'recipe'> {
    const { t } = this;
    this._effects = effects;
    this._texts = texts;
    const distances = new Map(effects.positions.map(each => [each.position, each.distances]));
    return this.take({
      layers: effects.layers,
      positions: [...distances.keys()],
      axis,
      texts: texts.clean,
      pixels: ROW,
      valueOf: (layer, position) => distances.get(position)?.get(layer) ?? null,
      scaleOf: values =>
        new ColorScale(extentOf([values]), transform, transform === 'log' ? lowMagnitude([values]) : NaN),
      xTitle: t('token of the clean text, and its position'),
      legendTitle: measureWords('distance', t),
      marks: () => ({ rules: divergenceRows(texts, RULE_COLOR, t) as Row[] })
    });
  }

  tipOf(mark: IMark): ITip | null {
    const { t, _texts: texts } = this;
    const { layer, position } = this.placeOf(mark);
    if (layer === null || position === null || !texts) {
      return null;
    }
    return {
      heading: `${layerName(layer, t)}, ${comparedName(texts, position, t)}`,
      lines: [
        { name: t('relative distance'), value: this._distance({ layer, position }) },
        ...nextLines(texts, position, t)
      ]
    };
  }

  /** The largest distance: where, and how large; null where none is finite. */
  get peak(): { readonly mark: IMark; readonly words: string } | null {
    let best: (ILayerPlace & { readonly value: number }) | null = null;
    for (const { distances, position } of this._effects?.positions ?? []) {
      for (const layer of this.rows) {
        const value = distances.get(layer) ?? NaN;
        if (Number.isFinite(value) && value > (best?.value ?? -Infinity)) {
          best = { layer, position, value };
        }
      }
    }
    const { _texts: texts, t } = this;
    if (best === null || !texts) {
      return null;
    }
    const words = t(
      'Hidden states move most in %1 at %2: %3 of their norm.',
      layerName(best.layer, t),
      comparedName(texts, best.position, t),
      formatNumber(best.value, 3)
    );
    return { mark: this.markOf(best), words };
  }

  protected words(place: ILayerPlace): { readonly where: string; readonly value: string } {
    const where = this._texts ? comparedName(this._texts, place.position, this.t) : '';
    return { where, value: this._distance(place) };
  }

  private _distance({ layer, position }: ILayerPlace): string {
    const effect = this._effects?.positions.find(each => each.position === position);
    return formatNumber(effect?.distances.get(layer) ?? NaN, 3);
  }

  private _effects: ISequenceEffects | null = null;
  private _texts: IComparedTexts | null = null;
}
