import { type ColorScale, type IRecipe, Pictures, type Row, type IPlace } from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IPointed } from '../../../../store/run-link';
import type { IContent, IMark, IMoved } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import { colorRangeControl, transformControl } from '../../../../views/shared/controls';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { colorStrip, lockedRange, scaleFromZero } from '../../../../views/shared/scale';
import { type ITable, numberColumn, tableOf, type ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { attentionPieces } from '../../store/attention-rows';
import type { IHeadMaps, IMapWindow, IHeadMap, IAttentionCell, IRankedQuery } from './attention-maps';
import { edgesOf, cellAt, headMaps, rankedKeys, valueAt, MapCells, headMeasures } from './attention-maps';
import type { IAttentionText, IAttentionPicture, IAttentionDrawing } from './attention-text';
import { axisLabels, percent, spanName } from './attention-text';
import {
  mapName,
  type IHabit,
  attentionTitle,
  habitWords,
  mapsCaption,
  textCaption,
  unfinishedWords
} from './attention-words';

/** Least and greatest width of a picture, and widths of axes and legend around grid and pictures, pixels. */
const [LEAST_WIDTH, MOST_HEIGHT] = [118, 520];
const [MARGINS, GAP] = [90, 52];
/** A picture that is narrower has numbers on its axes, not tokens. */
const WIDE = 240;

/** Return the columns of a grid of maps: those of a layer beside one another where there is room. */
function gridColumns(maps: number, heads: number, width: number): number {
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
 * @param width Pixels that the whole may take.
 */
function mapsRecipe(
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
  pictures.keep(maps.map(each => each.index));
  const rows = maps.map(({ index: place, map, cells }): Row => {
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
      headers: Object.fromEntries(maps.map(map => [map.index, isSingle ? '' : mapName(map, t)])),
      ...strip.params
    },
    datasets: { pictures: rows, legend: strip.rows },
    painted: pictures.painted,
    columns,
    height: Math.round(Math.min(MOST_HEIGHT, Math.max(LEAST_WIDTH - GAP, cell)))
  };
}

/** The keys of a query as a table. */
function keysTable(text: IAttentionText, { queries, keys, isBlock }: IRankedQuery, t: Translate): ITable {
  return tableOf(keys, [
    {
      title: t('Key of query %1', spanName(text, ...queries)),
      text: ({ first, last }) => spanName(text, first, last),
      sortBy: ({ first }) => first
    },
    numberColumn(isBlock ? t('Largest probability') : t('Probability'), ({ share }) => share, percent)
  ]);
}

/** The head that looks most at the first token, or at the one before; null where nothing is known of any. */
function headHabit(
  { read, sequence }: Pick<IAttentionText, 'read' | 'sequence'>,
  layers: readonly number[],
  heads: readonly number[]
): IHabit | null {
  let best: IHabit | null = null;
  for (const layer of layers) {
    const pieces = attentionPieces(read, layer, sequence);
    for (const kind of ['first', 'before'] as const) {
      const measures = headMeasures(pieces, kind);
      for (const head of heads) {
        const { value = NaN, isBound = false } = measures[head] ?? {};
        if (Number.isFinite(value) && (best === null || value > best.share)) {
          best = { layer, head, kind, share: value, isBound };
        }
      }
    }
  }
  return best;
}

/** Keys of a query that a tip names. */
const TIP_KEYS = 4;

/** Query × key for each layer and head. */
export class MapsPicture implements IAttentionPicture {
  constructor(
    private readonly _env: IViewEnvironment<AttentionOptions>,
    private readonly _open: (layer: number, head: number) => void,
    private readonly _look: (position: number) => void
  ) {}

  draw(request: IAttentionDrawing): IContent {
    const { _env: env } = this;
    const { text, layers, heads, position } = request;
    const { options, t } = env;
    const window = this._window(text.read.count);
    const shown = headMaps(text, layers, heads, window, this._shown);
    this._shown = shown;
    this._request = request;
    this._cells = new MapCells(shown.maps, text.read.count);
    const range = lockedRange(options.color_range ?? []);
    const scale = scaleFromZero(shown.whole, options.transform, { dark: env.isDark, range });
    this._domain = scale.domain;
    const { maps } = shown;
    const all = [0, text.read.count - 1] as const;
    const recipeOf = (pictures: Pictures, dark: boolean): IRecipe =>
      mapsRecipe(
        shown,
        text,
        window ?? { queries: all, keys: all },
        scaleFromZero(shown.whole, options.transform, { dark, range }),
        heads.length,
        env.width,
        pictures,
        t
      );
    const [only] = maps;
    const ranked =
      only && maps.length === 1 && position !== null
        ? rankedKeys(text, [only.layer], [only.head], position)
        : null;
    this._habit = headHabit(text, layers, heads);
    const end = text.read.count - 0.5;
    const recipe = recipeOf(this._pictures, env.isDark);
    return {
      recipe,
      rows: Math.ceil(maps.length / (recipe.columns ?? 1)),
      // Only the middle of a signed scale is another in the dark.
      ...(env.isDark && scale.signed ? { printed: () => recipeOf(new Pictures(), false) } : {}),
      extent: { x: [-0.5, end], y: [-0.5, end] },
      title: attentionTitle(
        text,
        maps.map(each => each.layer),
        maps.map(each => each.head),
        t
      ),
      caption: [
        ...textCaption(text, only?.map.row.compressor ?? '', request.step, t),
        ...mapsCaption(shown, scale, options, this._finest(request), t)
      ],
      summary: [...unfinishedWords(shown, t), habitWords(this._habit, t)].filter(Boolean).join(' '),
      ...(ranked ? { body: keysTable(text, ranked, t) } : {})
    };
  }

  controls(): Control[] {
    const { options, t, choose } = this._env;
    return [
      transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
      ...colorRangeControl(options.color_range, this._domain, choose, () => this._shown?.whole ?? [], t)
    ];
  }

  probe(point: IPlace): IMark | null {
    const cell = this._cells.at(point);
    // The keys of the keyboard go on from where the pointer is.
    this._at = cell ?? this._at;
    return cell && this._cells.markOf(cell);
  }

  tipOf(mark: IMark): ITip | null {
    const [cell, request] = [this._cells.of(mark), this._request];
    if (!cell || !request) {
      return null;
    }
    const { text } = request;
    const { t } = this._env;
    const { layer, head } = cell.map;
    const queries = this._cells.queriesOf(cell);
    const ranked = rankedKeys(text, [layer], [head], queries[0])?.keys.slice(0, TIP_KEYS) ?? [];
    return {
      heading: mapName(cell.map, t),
      lines: [
        { name: t('query'), value: spanName(text, ...queries) },
        { name: t('key'), value: spanName(text, ...this._cells.keysOf(cell)) },
        { name: isBlock(cell.map) ? t('largest') : t('probability'), value: this._valueName(cell) },
        ...ranked.map(({ first, last, share }, at) => ({
          name: at === 0 ? t('most at %1', spanName(text, first, last)) : spanName(text, first, last),
          value: percent(share)
        }))
      ]
    };
  }

  move(pressed: string): IMoved | null {
    const [cell, text] = [this._cells.moved(this._at, pressed), this._request?.text];
    if (!cell || !text) {
      return null;
    }
    this._at = cell;
    const [queries, keys] = [this._cells.queriesOf(cell), this._cells.keysOf(cell)];
    this._env.zoom?.reveal(keys[0], queries[0]);
    const { t } = this._env;
    const [query, key] = [spanName(text, ...queries), spanName(text, ...keys)];
    const value = this._valueName(cell);
    const sentence = t('%1, query %2, key %3: %4', mapName(cell.map, t), query, key, value);
    const mark = this._cells.markOf(cell);
    if (pressed === 'Enter') {
      this.clicked(mark);
    }
    return pressed === 'copy' ? { said: sentence, mark, copy: value } : { said: sentence, mark };
  }

  clicked(mark: IMark): void {
    const cell = this._cells.of(mark);
    if (cell && this._cells.maps.length > 1) {
      this._open(cell.map.layer, cell.map.head);
    } else if (cell && this._request?.text.generation === null) {
      this._look(this._cells.queriesOf(cell)[0]);
    }
  }

  insight(): IMark | null {
    const habit = this._habit;
    const map = this._cells.maps.find(each => each.layer === habit?.layer && each.head === habit.head);
    if (!map || !habit) {
      return null;
    }
    // In the middle of the text: the first queries have nothing else to look at.
    const query = Math.floor(this._count / 2);
    const { queries, keys } = map.map;
    const key = cellAt(keys, habit.kind === 'first' ? 0 : query - 1);
    this._at = { map, query: cellAt(queries, query), key };
    return this._cells.markOf(this._at);
  }

  pinned(): IMark | null {
    const { position = null, isChosen = false } = { ...this._request };
    // Beside one map its keys are listed, so that it is seen whose they are.
    const isNamed = isChosen || this._cells.maps.length === 1;
    return position === null || !isNamed ? null : this._cells.rowOf(position);
  }

  bandOf(mark: IMark): IMark[] {
    const cell = this._cells.of(mark);
    return cell ? [this._cells.bandOf(cell)] : [];
  }

  pointedBy(mark: IMark): IPointed {
    const cell = this._cells.of(mark);
    const { generation = null, sequence = null } = { ...this._request?.text };
    const position = cell && generation !== null ? this._cells.queriesOf(cell)[0] : null;
    return { layer: cell?.map.layer ?? null, step: null, generation, sequence, position };
  }

  marksOf({ layer, generation, sequence, position }: IPointed): ILinkedMarks {
    const text = this._request?.text;
    const isHere = text && generation === text.generation && sequence === text.sequence;
    const row = isHere && typeof position === 'number' ? this._cells.rowOf(position) : null;
    return { marks: row ? [row] : this._cells.layer(layer) };
  }

  /** What is looked at, and half as much on either side; null where all is. */
  private _window(count: number): IMapWindow | null {
    const { zoom } = this._env;
    if (!zoom?.isZoomed || !this._shown) {
      return null;
    }
    const { x0, x1, y0, y1 } = zoom.domain;
    const around = (from: number, to: number): readonly [number, number] => {
      const margin = (to - from) / 2;
      return [Math.max(0, Math.floor(from - margin)), Math.min(count - 1, Math.ceil(to + margin))];
    };
    return { queries: around(y0, y1), keys: around(x0, x1) };
  }

  private _valueName({ map, query, key }: IAttentionCell): string {
    const value = valueAt(map, query, key);
    return value === null ? this._env.t('nothing') : percent(value);
  }

  /** Least side of the blocks that there are, down and across. */
  private _finest({ text, layers }: IAttentionDrawing): readonly [number, number] {
    const pieces = layers.flatMap(layer => attentionPieces(text.read, layer, text.sequence));
    const least = (axis: 'keys' | 'queries'): number =>
      pieces.reduce((found, piece) => Math.min(found, piece[axis].side), Infinity);
    return [least('queries'), least('keys')];
  }

  private get _count(): number {
    return this._request?.text.read.count ?? 0;
  }

  private _shown: IHeadMaps | null = null;
  private _request: IAttentionDrawing | null = null;
  private _domain: readonly [number, number] | null = null;
  private _habit: IHabit | null = null;
  private _cells = new MapCells([], 0);
  private _at: IAttentionCell | null = null;
  private readonly _pictures = new Pictures();
}

const isBlock = ({ map }: IHeadMap): boolean => map.queries.side > 1 || map.keys.side > 1;
