import { type ColorScale, type IRecipe, Pictures, type Row } from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IPointed } from '../../../../store/run-link';
import { CellPicture, type ICellWords } from '../../../../views/kits/matrix/matrix-picture';
import type { IContent, IMark } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import { colorRangeControl, transformControl } from '../../../../views/shared/controls';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { colorStrip, type IGridCell, lockedRange, scaleFromZero } from '../../../../views/shared/scale';
import { type ITable, numberColumn, tableOf } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { attentionPieces } from '../../store/attention-rows';
import type { IHeadMaps, IMapWindow, IHeadMap, IRankedQuery } from './attention-maps';
import {
  edgesOf,
  cellAt,
  headMaps,
  middlesOf,
  positionsOf,
  rankedKeys,
  valueAt,
  headMeasures
} from './attention-maps';
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
export class MapsPicture extends CellPicture implements IAttentionPicture {
  constructor(
    private readonly _of: IViewEnvironment<AttentionOptions>,
    private readonly _open: (layer: number, head: number) => void,
    private readonly _look: (position: number) => void
  ) {
    super(_of.t, _of);
  }

  protected override readonly turns = true;

  draw(request: IAttentionDrawing): IContent {
    const { _of: env } = this;
    const { text, layers, heads, position } = request;
    const { options, t } = env;
    const window = this._window(text.read.count);
    const shown = headMaps(text, layers, heads, window, this._shown);
    this._shown = shown;
    this._request = request;
    this.plots = shown.maps.map(({ index, map: { queries, keys } }) => ({
      facet: ['layer', index],
      x: this._whole,
      xs: middlesOf(keys),
      half: keys.side / 2,
      ys: middlesOf(queries),
      halfDown: queries.side / 2,
      axis: null
    }));
    const scale = this._scaleIn(shown, env.isDark);
    this._domain = scale.domain;
    const { maps } = shown;
    const [only] = maps;
    const ranked =
      only && maps.length === 1 && position !== null
        ? rankedKeys(text, [only.layer], [only.head], position)
        : null;
    this._habit = headHabit(text, layers, heads);
    const recipe = this._recipe(request, shown, window, this._pictures, env.isDark);
    return {
      recipe,
      rows: Math.ceil(maps.length / (recipe.columns ?? 1)),
      // Only the middle of a signed scale is another in the dark.
      ...(env.isDark && scale.signed
        ? { printed: () => this._recipe(request, shown, window, new Pictures(), false) }
        : {}),
      extent: { x: this._whole, y: this._whole },
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
    const { options, t, choose } = this._of;
    return [
      transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
      ...colorRangeControl(options.color_range, this._domain, choose, () => this._shown?.whole ?? [], t)
    ];
  }

  protected words(at: IGridCell): ICellWords {
    const [found, text] = [this._found(at), this._request?.text];
    if (!found || !text) {
      return { tip: null, said: '', value: '' };
    }
    const { t } = this;
    const { map, queries, keys } = found;
    const { layer, head } = map;
    const [query, key] = [spanName(text, ...queries), spanName(text, ...keys)];
    const share = valueAt(map, at.row, at.column);
    const value = share === null ? t('nothing') : percent(share);
    const ranked = rankedKeys(text, [layer], [head], queries[0])?.keys.slice(0, TIP_KEYS) ?? [];
    return {
      said: t('%1, query %2, key %3: %4', mapName(map, t), query, key, value),
      value,
      tip: {
        heading: mapName(map, t),
        lines: [
          { name: t('query'), value: query },
          { name: t('key'), value: key },
          { name: isBlock(map) ? t('largest') : t('probability'), value },
          ...ranked.map(({ first, last, share: most }, place) => ({
            name: place === 0 ? t('most at %1', spanName(text, first, last)) : spanName(text, first, last),
            value: percent(most)
          }))
        ]
      }
    };
  }

  clicked(mark: IMark): void {
    const found = this._foundOf(mark);
    if (found && this.plots.length > 1) {
      this._open(found.map.layer, found.map.head);
    } else if (found && this._request?.text.generation === null) {
      this._look(found.queries[0]);
    }
  }

  protected override pressed(mark: IMark): void {
    this.clicked(mark);
  }

  insight(): IMark | null {
    const habit = this._habit;
    const map = this._shown?.maps.find(each => each.layer === habit?.layer && each.head === habit.head);
    if (!map || !habit) {
      return null;
    }
    // In the middle of the text: the first queries have nothing else to look at.
    const query = Math.floor(this._count / 2);
    const { queries, keys } = map.map;
    const column = cellAt(keys, habit.kind === 'first' ? 0 : query - 1);
    return this.show({ plot: map.index, row: cellAt(queries, query), column });
  }

  pinned(): IMark | null {
    const { position = null, isChosen = false } = { ...this._request };
    // Beside one map its keys are listed, so that it is seen whose they are.
    const isNamed = isChosen || this.plots.length === 1;
    return position === null || !isNamed ? null : this._rowAt(position);
  }

  /** The row of a cell's queries. */
  bandOf(mark: IMark): IMark[] {
    return this.cellOf(mark) ? [{ ...mark, x: this._whole }] : [];
  }

  override pointedBy(mark: IMark): IPointed {
    const found = this._foundOf(mark);
    const { generation = null, sequence = null } = { ...this._request?.text };
    const position = found && generation !== null ? found.queries[0] : null;
    return { layer: found?.map.layer ?? null, step: null, generation, sequence, position };
  }

  override marksOf({ layer, generation, sequence, position }: IPointed): ILinkedMarks {
    const text = this._request?.text;
    const isHere = text && generation === text.generation && sequence === text.sequence;
    const row = isHere && typeof position === 'number' ? this._rowAt(position) : null;
    const maps = this._shown?.maps.filter(each => each.layer === layer) ?? [];
    return {
      marks: row
        ? [row]
        : maps.map(({ index }) => ({ facet: ['layer', index], x: this._whole, y: this._whole }))
    };
  }

  /** The row of a query, in every map. */
  private _rowAt(position: number): IMark | null {
    const axis = this._shown?.maps[0]?.map.queries;
    return axis && position < this._count
      ? { facet: null, x: this._whole, y: edgesOf(axis, Math.floor((position - axis.first) / axis.side)) }
      : null;
  }

  private _foundOf(mark: IMark): IFound | null {
    const cell = this.cellOf(mark);
    return cell && this._found(cell);
  }

  private _found({ plot = 0, row, column }: IGridCell): IFound | null {
    const map = this._shown?.maps[plot];
    return map
      ? {
          map,
          queries: positionsOf(map.map.queries, row, this._count),
          keys: positionsOf(map.map.keys, column, this._count)
        }
      : null;
  }

  private _scaleIn({ whole }: IHeadMaps, dark: boolean): ColorScale {
    const { color_range: locked, transform } = this._of.options;
    return scaleFromZero(whole, transform, { dark, range: lockedRange(locked ?? []) });
  }

  private _recipe(
    { text, heads }: IAttentionDrawing,
    shown: IHeadMaps,
    window: IMapWindow | null,
    pictures: Pictures,
    dark: boolean
  ): IRecipe {
    const { t, width } = this._of;
    const { maps, nonFinite } = shown;
    const columns = gridColumns(maps.length, heads.length, width);
    const cell = (width - MARGINS) / columns - GAP;
    const scale = this._scaleIn(shown, dark);
    const strip = colorStrip(scale, nonFinite > 0, t);
    const isWide = cell >= WIDE && text.tokens.length > 0;
    const all = [0, text.read.count - 1] as const;
    const [x0, end] = this._whole;
    pictures.keep(maps.map(each => each.index));
    const rows = maps.map(({ index: place, map: { keys, queries }, cells }): Row => {
      const [x, y] = [edgesOf(keys, 0)[0], edgesOf(queries, 0)[0]];
      const [x2, y2] = [edgesOf(keys, keys.count - 1)[1], edgesOf(queries, queries.count - 1)[1]];
      return { layer: place, ...pictures.draw(place, cells, scale), x, x2, y, y2 };
    });
    return {
      template: 'heatmap',
      texts: {
        xTitle: t('key'),
        yTitle: t('query'),
        legendTitle: maps.some(isBlock) ? t('largest probability') : t('probability')
      },
      params: {
        x0,
        x1: end,
        y0: x0,
        y1: end,
        tokens: isWide ? axisLabels(text, window?.keys ?? all) : [],
        rowTokens: isWide ? axisLabels(text, window?.queries ?? all) : [],
        headers: Object.fromEntries(maps.map(map => [map.index, maps.length === 1 ? '' : mapName(map, t)])),
        ...strip.params
      },
      datasets: { pictures: rows, legend: strip.rows },
      painted: pictures.painted,
      columns,
      height: Math.round(Math.min(MOST_HEIGHT, Math.max(LEAST_WIDTH - GAP, cell)))
    };
  }

  /** What is looked at, and half as much on either side; null where all is. */
  private _window(count: number): IMapWindow | null {
    const { zoom } = this._of;
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

  /** Least side of the blocks that there are, down and across. */
  private _finest({ text, layers }: IAttentionDrawing): readonly [number, number] {
    const pieces = layers.flatMap(layer => attentionPieces(text.read, layer, text.sequence));
    const least = (axis: 'keys' | 'queries'): number =>
      pieces.reduce((found, piece) => Math.min(found, piece[axis].side), Infinity);
    return [least('queries'), least('keys')];
  }

  private get _whole(): readonly [number, number] {
    return [-0.5, this._count - 0.5];
  }

  private get _count(): number {
    return this._request?.text.read.count ?? 0;
  }

  private _shown: IHeadMaps | null = null;
  private _request: IAttentionDrawing | null = null;
  private _domain: readonly [number, number] | null = null;
  private _habit: IHabit | null = null;
  private readonly _pictures = new Pictures();
}

/** A map, and the first and last query and key of one of its cells, padding left out. */
interface IFound {
  readonly map: IHeadMap;
  readonly queries: readonly [number, number];
  readonly keys: readonly [number, number];
}

const isBlock = ({ map }: IHeadMap): boolean => map.queries.side > 1 || map.keys.side > 1;
