import { Pictures, type IPlace, type IRecipe } from '../../../../charts';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import { attentionPieces } from '../../store/attention-rows';
import type { IPointed } from '../../../../store/run-link';
import type { IContent, IMark, IMoved } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import { colorRangeControl, transformControl } from '../../../../views/shared/controls';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { lockedRange, scaleFromZero } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/tip';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import { cellAt, headMaps, valueAt, type IHeadMap, type IHeadMaps, type IMapWindow } from './attention-maps';
import { percent, spanName } from './attention-text';
import {
  attentionTitle,
  habitWords,
  mapName,
  mapsCaption,
  textCaption,
  type IHabit
} from './attention-words';
import { MapCells, type IAttentionCell } from './cells';
import { headHabit } from './head-habit';
import { mapsRecipe } from './maps-recipe';
import type { IAttentionPicture, IAttentionDrawing } from './picture';
import { keysTable, rankedKeys } from './ranked-keys';

/** Keys of a query that a tip names. */
const TIP_KEYS = 4;

/** Query × key for each layer and head. */
export class MapsPicture implements IAttentionPicture {
  /**
   * @param _open Draws one head in full.
   * @param _look Looks at a position, where no other view can be told of it.
   */
  constructor(
    private readonly _env: IViewEnvironment<AttentionOptions>,
    private readonly _open: (layer: number, head: number) => void,
    private readonly _look: (position: number) => void
  ) {}

  draw(wish: IAttentionDrawing): IContent {
    const { _env: env } = this;
    const { text, layers, heads, position } = wish;
    const { options, t } = env;
    const window = this._window(text.read.count);
    const shown = headMaps(text, layers, heads, window, this._shown);
    this._shown = shown;
    this._wish = wish;
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
        ? rankedKeys(text, only.layer, only.head, position)
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
        ...textCaption(text, only?.map.row.compressor ?? '', wish.step, t),
        ...mapsCaption(shown, scale, options, this._finest(wish), t)
      ],
      summary: habitWords(this._habit, t),
      ...(ranked ? { body: keysTable(text, ranked, t) } : {})
    };
  }

  controls(): Control[] {
    const { options, t, choose } = this._env;
    return [
      transformControl(t('Colours'), options.transform, transform => choose({ transform }), t),
      ...colorRangeControl(options.color_range, this._domain, choose, t)
    ];
  }

  probe(place: IPlace): IMark | null {
    const cell = this._cells.at(place);
    // The keys of the keyboard go on from where the pointer is.
    this._at = cell ?? this._at;
    return cell && this._cells.markOf(cell);
  }

  tipOf(mark: IMark): ITip | null {
    const [cell, wish] = [this._cells.of(mark), this._wish];
    if (!cell || !wish) {
      return null;
    }
    const { text } = wish;
    const { t } = this._env;
    const { layer, head } = cell.map;
    const queries = this._cells.queriesOf(cell);
    const ranked = rankedKeys(text, layer, head, queries[0])?.keys.slice(0, TIP_KEYS) ?? [];
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
    const [cell, text] = [this._cells.moved(this._at, pressed), this._wish?.text];
    if (!cell || !text) {
      return null;
    }
    this._at = cell;
    const [queries, keys] = [this._cells.queriesOf(cell), this._cells.keysOf(cell)];
    this._env.zoom?.reveal(keys[0], queries[0]);
    const { t } = this._env;
    const [query, key] = [spanName(text, ...queries), spanName(text, ...keys)];
    const value = this._valueName(cell);
    const said = t('%1, query %2, key %3: %4', mapName(cell.map, t), query, key, value);
    const mark = this._cells.markOf(cell);
    if (pressed === 'Enter') {
      this.clicked(mark);
    }
    return pressed === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  clicked(mark: IMark): void {
    const cell = this._cells.of(mark);
    if (cell && this._cells.maps.length > 1) {
      this._open(cell.map.layer, cell.map.head);
    } else if (cell && this._wish?.text.generation === null) {
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
    const { position = null, isChosen = false } = { ...this._wish };
    // Beside one map its keys are listed, so that it is seen whose they are.
    const isTold = isChosen || this._cells.maps.length === 1;
    return position === null || !isTold ? null : this._cells.rowOf(position);
  }

  bandOf(mark: IMark): IMark | null {
    const cell = this._cells.of(mark);
    return cell && this._cells.bandOf(cell);
  }

  pointedBy(mark: IMark): IPointed {
    const cell = this._cells.of(mark);
    const { generation = null, sequence = null } = { ...this._wish?.text };
    const position = cell && generation !== null ? this._cells.queriesOf(cell)[0] : null;
    return { layer: cell?.map.layer ?? null, step: null, generation, sequence, position };
  }

  marksOf({ layer, generation, sequence, position }: IPointed): ILinkedMarks {
    const text = this._wish?.text;
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
    return this._wish?.text.read.count ?? 0;
  }

  private _shown: IHeadMaps | null = null;
  private _wish: IAttentionDrawing | null = null;
  private _domain: readonly [number, number] | null = null;
  private _habit: IHabit | null = null;
  private _cells = new MapCells([], 0);
  private _at: IAttentionCell | null = null;
  private readonly _pictures = new Pictures();
}

const isBlock = ({ map }: IHeadMap): boolean => map.queries.side > 1 || map.keys.side > 1;
