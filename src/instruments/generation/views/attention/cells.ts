import type { IPlace } from '../../../../charts';
import type { IMark } from '../../../../views/shared/content';
import { hold, moveAmongPictures } from '../../../../views/shared/places';
import { cellAt, edgesOf, positionsOf, type IHeadMap } from './attention-maps';

/** A cell of one of the maps. */
export interface IAttentionCell {
  readonly map: IHeadMap;
  readonly query: number;
  readonly key: number;
}

/** Where the cells of maps lie. Maps are the pictures of a grid by their place; x counts keys, y queries, both in positions of the text. */
export class MapCells {
  /**
   * @param _count Positions of the text.
   */
  constructor(
    readonly maps: readonly IHeadMap[],
    private readonly _count: number
  ) {}

  /** What is under the pointer. */
  at({ frame, x, y }: IPlace): IAttentionCell | null {
    const map = this.maps[Number(frame.facet['layer'])];
    return map ? this._cell(map, Math.round(y), Math.round(x)) : null;
  }

  /** The cell of a mark; also of one that was made while cells were of another size. */
  of(mark: IMark): IAttentionCell | null {
    const map = this.maps[Number(mark.facet?.[1])];
    const middle = ([low, high]: readonly [number, number]): number => Math.floor((low + high) / 2);
    return map && mark.y ? this._cell(map, middle(mark.y), middle(mark.x)) : null;
  }

  /** Where a key leads, from where the cursor was; null where it means nothing. */
  moved(from: IAttentionCell | null, pressed: string): IAttentionCell | null {
    const by = moveAmongPictures(pressed === 'Enter' ? 'copy' : pressed);
    const map = this.maps[hold((from?.map.place ?? 0) + (by?.[2] ?? 0), this.maps.length)];
    if (!by || !map) {
      return null;
    }
    const { queries, keys } = map.map;
    const [query, key] = from ? [this.queriesOf(from)[0], this.keysOf(from)[0]] : [0, 0];
    const step = from ? by : [0, 0];
    return {
      map,
      query: hold(cellAt(queries, query) + (step[1] ?? 0), queries.count),
      key: hold(cellAt(keys, key) + (step[0] ?? 0), keys.count)
    };
  }

  /** First and last query of a cell, padding left out. */
  queriesOf({ map, query }: IAttentionCell): readonly [number, number] {
    return positionsOf(map.map.queries, query, this._count);
  }

  /** First and last key. */
  keysOf({ map, key }: IAttentionCell): readonly [number, number] {
    return positionsOf(map.map.keys, key, this._count);
  }

  markOf({ map, query, key }: IAttentionCell): IMark {
    const { queries, keys } = map.map;
    return { facet: ['layer', map.place], x: edgesOf(keys, key), y: edgesOf(queries, query) };
  }

  /** The row of a cell's queries. */
  bandOf({ map, query }: IAttentionCell): IMark {
    return { facet: ['layer', map.place], x: this._whole, y: edgesOf(map.map.queries, query) };
  }

  /** The row of a query, in every map. */
  rowOf(position: number): IMark | null {
    const axis = this.maps[0]?.map.queries;
    return axis && position < this._count
      ? {
          facet: null,
          x: this._whole,
          y: edgesOf(axis, Math.floor((position - axis.first) / axis.side))
        }
      : null;
  }

  /** The whole maps of a layer. */
  layer(layer: number | null): IMark[] {
    return this.maps
      .filter(each => each.layer === layer)
      .map(({ place }) => ({ facet: ['layer', place], x: this._whole, y: this._whole }));
  }

  private _cell(map: IHeadMap, query: number, key: number): IAttentionCell {
    return { map, query: cellAt(map.map.queries, query), key: cellAt(map.map.keys, key) };
  }

  private get _whole(): readonly [number, number] {
    return [-0.5, this._count - 0.5];
  }
}
