import { COLORS, formatFull, type IPlace, type IPlotFrame, type IRecipe, type Row } from '../../../charts';
import { firstIndex } from '../../../protocol/records';
import { isInLoop, type IContent, type IMark, type IMoved } from '../../shared/content';
import { axisParams, hold, moveOf } from '../../shared/scale';
import type { ITip } from '../../shared/table';
import type { IPictured, IViewEnvironment } from '../../shared/view-model';

/** How far from a point the pointer means it, and half the side of what marks it, pixels. */
const REACH = 12;
const HALF = 6;
/** Pixels of a plot where none is drawn, and of its height where nothing asks for more. */
const USUAL = 500;
const HEIGHT = 420;
/** Points up to which each is as large, in square pixels, and as opaque. */
const SIZES: readonly (readonly [most: number, size: number, opacity: number])[] = [
  [400, 46, 0.9],
  [3000, 24, 0.75],
  [Infinity, 12, 0.6]
];
/** Opacity of what is not among those that stand out. */
const FAINT = 0.25;
/** Up to so many points each has its name beside it. */
const MOST_NAMES = 24;
const RING = 150;

/** How a point, or an entry of the key, looks. */
export interface IPointLook {
  readonly color: string;
  readonly shape: string;
}

/** How points look on a light or on a dark page. */
export interface IPointLooks {
  readonly title: string;
  /** Of each point. */
  readonly looks: readonly IPointLook[];
  readonly key: readonly (IPointLook & { readonly text: string })[];
}

/** Points of a plane, and what is said of them. */
export interface IPointsDrawing {
  /** Across and up, two numbers a point; NaN for those that are left out. */
  readonly coordinates: ArrayLike<number>;
  readonly looksOf: (dark: boolean) => IPointLooks;
  readonly titles: { readonly x: string; readonly y: string };
  /** Whether a unit is as long across as up. */
  readonly isSquare: boolean;
  /** Points that are drawn; all where absent. Those that are not can be pointed at all the same. */
  readonly shown?: readonly number[];
  /** Whether a point stands out; the others are faint. Absent where none does. */
  readonly standsOut?: (at: number) => boolean;
  /** Points that are looked at, and others with their names beside them where there are many. */
  readonly ringed: (at: number) => boolean;
  readonly named: readonly number[];
  readonly nameOf: (at: number) => string;
  /** What a picture that is passed on says of a point. */
  readonly textOf: (at: number) => string;
  readonly tipOf: (at: number) => ITip | null;
  /** What a key says of a point. */
  readonly said: (at: number) => string;
  /** Where a key leads from a point; the one before or after where absent. */
  readonly next?: (at: number, by: readonly [number, number]) => number;
}

interface IUnits {
  readonly across: number;
  readonly down: number;
}

/** Points of a plane: what is drawn, what is under the pointer, and where a key goes. */
export class PointsPicture implements IPictured {
  constructor(private readonly _env: Partial<Pick<IViewEnvironment, 'frame' | 'zoom'>>) {}

  /** The point that the cursor is at. */
  cursor: number | null = null;

  /** Every point that has a place. */
  points: readonly number[] = [];

  take(
    drawing: IPointsDrawing,
    isDark: boolean
  ): Pick<IContent, 'extent' | 'isSquare' | 'printed' | 'recipe'> {
    const { coordinates, isSquare } = drawing;
    this._drawing = drawing;
    this.points = Array.from({ length: coordinates.length >> 1 }, (_, at) => at).filter(
      at => !Number.isNaN(coordinates[2 * at])
    );
    const extent = this._extent();
    return {
      recipe: this._recipe(drawing, extent, isDark),
      printed: (dark = false) => this._recipe(drawing, extent, dark),
      extent,
      ...(isSquare && { isSquare })
    };
  }

  probe({ frame, x, y }: IPlace): IMark | null {
    const near = this._nearest(x, y, this._units(frame));
    return near === null || near.apart > REACH ? null : this.show(near.at);
  }

  tipOf(mark: IMark): ITip | null {
    const at = this.pointOf(mark);
    return at === null ? null : (this._drawing?.tipOf(at) ?? null);
  }

  move(key: string): IMoved | null {
    const by = moveOf(key);
    const at = by && this._moved(by);
    if (at === undefined || this._drawing === null) {
      return null;
    }
    const mark = this.show(at);
    const { x, y } = this.placeOf(at);
    this._env.zoom?.reveal(x, y);
    const said = this._drawing.said(at);
    return key === 'copy' ? { said, mark, copy: `${formatFull(x)}, ${formatFull(-y)}` } : { said, mark };
  }

  /** Put the cursor at a point, and return its mark. */
  show(at: number): IMark {
    this.cursor = at;
    return this.markOf(at);
  }

  markOf(at: number): IMark {
    const { x, y } = this.placeOf(at);
    const { across, down } = this._units(this._env.frame ?? { width: USUAL, height: HEIGHT });
    const [left, top] = [HALF * across, HALF * down];
    return { facet: null, x: [x - left, x + left], y: [y - top, y + top] };
  }

  /** The point of a mark; null where it is gone. */
  pointOf({ x, y }: IMark): number | null {
    if (y === null) {
      return null;
    }
    const units = { across: (x[1] - x[0]) / 2 / HALF, down: (y[1] - y[0]) / 2 / HALF };
    const near = this._nearest((x[0] + x[1]) / 2, (y[0] + y[1]) / 2, units);
    return near && near.apart <= HALF ? near.at : null;
  }

  /** The points in a box, or in a loop. */
  inside({ loop, x, y }: IMark): number[] {
    return this.points.filter(at => {
      const place = this.placeOf(at);
      return loop
        ? isInLoop(loop, place.x, place.y)
        : place.x >= x[0] && place.x <= x[1] && y !== null && place.y >= y[0] && place.y <= y[1];
    });
  }

  /** Where a point is drawn. y counts downwards, as in every picture; the axis writes the other sign. */
  placeOf(at: number): { readonly x: number; readonly y: number } {
    const { coordinates = [] } = this._drawing ?? {};
    return { x: coordinates[2 * at] ?? NaN, y: -(coordinates[2 * at + 1] ?? NaN) };
  }

  private _recipe(
    { looksOf, titles, shown = this.points, standsOut, ringed, named, nameOf, textOf }: IPointsDrawing,
    extent: IContent['extent'],
    isDark: boolean
  ): IRecipe {
    const looks = looksOf(isDark);
    const [, size, opacity] = SIZES.find(([most]) => shown.length <= most) ?? [0, 12, 0.6];
    const ink = COLORS.ink[isDark ? 'dark' : 'light'];
    const rings = this.points.filter(ringed);
    const names = new Set(
      this.points.length <= MOST_NAMES ? this.points : [...named, ...(rings.length < 9 ? rings : [])]
    );
    // Those that stand out, and those that are looked at, lie above the others.
    const rank = (at: number): number => (standsOut?.(at) ? 1 : 0);
    const order = standsOut ? [...shown].sort((a, b) => rank(a) - rank(b) || a - b) : shown;
    return {
      template: 'points',
      texts: { colorTitle: looks.title },
      params: {
        ...axisParams(extent.x, extent.y),
        // Params, not texts: where they say something else, a text would draw everything anew.
        xName: titles.x,
        yName: titles.y,
        keyColor: ink.muted
      },
      datasets: {
        points: order.map((at): Row => ({
          ...this.placeOf(at),
          text: textOf(at),
          ...looks.looks[at],
          size,
          opacity: standsOut?.(at) === false ? FAINT : opacity
        })),
        rings: rings.map(at => ({ ...this.placeOf(at), color: ink.strong, size: RING, width: 2 })),
        names: [...names]
          .filter(at => !Number.isNaN(this.placeOf(at).x))
          .map(at => ({ ...this.placeOf(at), text: nameOf(at), color: ink.text })),
        key: looks.key.map((each, place) => ({ place, ...each }))
      },
      height: HEIGHT
    };
  }

  /** What points cover, with some air. */
  private _extent(): IContent['extent'] {
    const span = (axis: 'x' | 'y'): readonly [number, number] => {
      let [low, high] = [Infinity, -Infinity];
      for (const at of this.points) {
        const place = this.placeOf(at)[axis];
        [low, high] = [Math.min(low, place), Math.max(high, place)];
      }
      return [low, high];
    };
    const [x, y] = [span('x'), span('y')];
    const [wide, high] = [x[1] - x[0], y[1] - y[0]];
    const both = this._drawing?.isSquare ? Math.max(wide, high) : null;
    const padded = ([low, high]: readonly [number, number], size: number): readonly [number, number] => {
      const air = 0.05 * (both ?? size) || 1;
      return [low - air, high + air];
    };
    return { x: padded(x, wide), y: padded(y, high) };
  }

  private _moved(by: readonly [number, number]): number | undefined {
    const { cursor, points } = this;
    const near = cursor === null ? 0 : firstIndex(points.length, place => (points[place] ?? 0) >= cursor);
    const place = hold(near, points.length);
    const now = points[place];
    return now === undefined || cursor === null
      ? now
      : this._drawing?.next
        ? this._drawing.next(now, by)
        : points[hold(place + by[0] + by[1], points.length)];
  }

  private _nearest(
    x: number,
    y: number,
    { across, down }: IUnits
  ): { readonly at: number; readonly apart: number } | null {
    let [best, apart] = [-1, Infinity];
    for (const at of this.points) {
      const place = this.placeOf(at);
      const away = Math.hypot((place.x - x) / across, (place.y - y) / down);
      if (away < apart) {
        [best, apart] = [at, away];
      }
    }
    return best < 0 ? null : { at: best, apart };
  }

  /** Units of a pixel. */
  private _units({ width, height }: Pick<IPlotFrame, 'height' | 'width'>): IUnits {
    const { x0 = 0, x1 = 1, y0 = 0, y1 = 1 } = this._env.zoom?.domain ?? {};
    const across = (x1 - x0) / Math.max(1, width);
    return { across, down: this._drawing?.isSquare ? across : (y1 - y0) / Math.max(1, height) };
  }

  private _drawing: IPointsDrawing | null = null;
}
