import type { ColorScale, IRecipe, Pictures, Row } from '../../../../charts';
import { colorStrip } from '../../../../views/shared/scale';
import type { Translate } from '../../../../views/shared/translate';
import { edgesOf, type IHeadMaps, type IMapWindow } from './attention-maps';
import { axisLabels, type IAttentionText } from './attention-text';
import { mapName } from './attention-words';

/** Least and greatest width in pixels of a picture, and what axes and legend take beside the grid and beside each picture. */
const [LEAST_WIDTH, MOST_HEIGHT] = [118, 520];
const [MARGINS, GAP] = [90, 52];
/** A picture that is narrower has numbers on its axes, not tokens. */
const WIDE = 240;

/** Return the columns of a grid of maps: those of a layer beside one another where there is room. */
export function gridColumns(maps: number, heads: number, width: number): number {
  const most = Math.max(1, Math.floor((width - MARGINS) / LEAST_WIDTH));
  if (heads <= most) {
    return Math.max(1, Math.min(maps, heads));
  }
  for (let columns = most; columns > most / 2; columns -= 1) {
    if (heads % columns === 0) {
      return columns;
    }
  }
  return Math.ceil(maps / Math.ceil(maps / most));
}

/**
 * Return the chart of maps.
 *
 * @param part What is looked at, and some more around it.
 * @param heads How many of each layer there are.
 * @param width Pixels that the whole may take.
 */
export function mapsRecipe(
  shown: IHeadMaps,
  text: IAttentionText,
  part: IMapWindow,
  scale: ColorScale,
  heads: number,
  width: number,
  pictures: Pictures,
  t: Translate
): IRecipe {
  const { maps, nonFinite } = shown;
  const columns = gridColumns(maps.length, heads, width);
  const cell = (width - MARGINS) / columns - GAP;
  const strip = colorStrip(scale, nonFinite > 0, t);
  const isWide = cell >= WIDE && text.tokens.length > 0;
  const isSingle = maps.length === 1;
  const end = text.read.count - 0.5;
  const isBlock = maps.some(({ map }) => map.queries.side > 1 || map.keys.side > 1);
  pictures.keep(maps.map(each => each.place));
  const rows = maps.map(({ place, map, cells }): Row => {
    const [x, y] = [edgesOf(map.keys, 0)[0], edgesOf(map.queries, 0)[0]];
    const [x2, y2] = [
      edgesOf(map.keys, map.keys.count - 1)[1],
      edgesOf(map.queries, map.queries.count - 1)[1]
    ];
    return { layer: place, ...pictures.draw(place, cells, scale), x, x2, y, y2 };
  });
  return {
    template: 'heatmap',
    texts: {
      xTitle: t('key'),
      yTitle: t('query'),
      legendTitle: isBlock ? t('largest probability') : t('probability')
    },
    params: {
      x0: -0.5,
      x1: end,
      y0: -0.5,
      y1: end,
      tokens: isWide ? axisLabels(text, part.keys) : [],
      rowTokens: isWide ? axisLabels(text, part.queries) : [],
      headers: Object.fromEntries(maps.map(map => [map.place, isSingle ? '' : mapName(map, t)])),
      ...strip.params
    },
    datasets: { pictures: rows, legend: strip.rows },
    painted: pictures.painted,
    columns,
    height: Math.round(Math.min(MOST_HEIGHT, Math.max(LEAST_WIDTH - GAP, cell)))
  };
}
