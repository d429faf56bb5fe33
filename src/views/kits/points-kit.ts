import { COLORS, formatInteger, formatNumber, middleOf } from '../../charts';
import type { ScalarsOptions } from '../../protocol/views.generated';
import type { IPointed } from '../../store/run-link';
import type { IStreamRows } from '../../store/row-store';
import type { IMark } from '../shared/content';
import type { IViewDefinition } from '../shared/definition';
import type { ILinkedMarks } from '../shared/links';
import { extentOf, hold } from '../shared/scale';
import { emptyState, type IState } from '../shared/states';
import type { ITip } from '../shared/table';
import { columnOf, KitView, saidOf, type Drawn, type IKit, type Said } from './kit';
import { lineColors } from './lines/legend';
import { PointsPicture, type IPointLook } from './points/points-picture';

/** Options that a view of points has beside its own; see `kitOptions`. */
export type KitPointOptions = Pick<Required<ScalarsOptions>, 'hidden' | 'steps'>;

/** A point as a view gives it. */
export interface IPlanePoint {
  readonly name: string;
  /** Where it lies, to the right and upwards; one that is not finite is left out, and counted. */
  readonly x: number;
  readonly y: number;
  /** Those of a group have one colour, and are hidden and shown together. */
  readonly group?: string;
  /** Step and layer that it is of: it is marked where another view points at them. */
  readonly step?: number;
  readonly layer?: number;
}

export interface IPointsKit<O extends object> extends IKit<O, readonly IPlanePoint[]> {
  /** What lies across and up: the titles of the axes. */
  readonly x: Said<O>;
  readonly y: Said<O>;
  /** What a group is: the title of the legend. */
  readonly group: string;
  /** Whether a unit is as long across as up. */
  readonly isSquare?: boolean;
}

/** Most points that are drawn, and squares along an axis of which each shows one point of a group then. */
const MOST_DRAWN = 20_000;
const [FINEST, COARSEST] = [512, 16];
/** Most points that are marked when another view points at their step or layer. */
const MOST_MARKED = 50;
/** Most groups that the summary counts. */
const MOST_COUNTED = 5;

/** Points of any rows, with all that those of the house have. */
class PointsView<O extends KitPointOptions> extends KitView<O, readonly IPlanePoint[], IPointsKit<O>> {
  override readonly zooms = { axes: 'xy', least: 1e-9 } as const;

  override insight(): IMark | null {
    const farthest = this._farthest;
    return farthest && this._picture.show(farthest.at);
  }

  override pointedBy(mark: IMark): IPointed {
    const { step = null, layer = null } = this._points[this._picture.pointOf(mark) ?? -1] ?? {};
    return { step, layer };
  }

  override marksOf({ layer, step }: IPointed): ILinkedMarks {
    const found = this._picture.points.filter(at => {
      const { layer: ofLayer, step: ofStep } = this._points[at] ?? {};
      return (layer !== null && ofLayer === layer) || (step !== null && ofStep === step);
    });
    return { marks: found.slice(0, MOST_MARKED).map(at => this._picture.markOf(at)) };
  }

  protected override get drawn(): PointsPicture {
    return this._picture;
  }

  protected override within(
    points: readonly IPlanePoint[],
    steps: readonly [number, number] | null
  ): readonly IPlanePoint[] | null {
    const found = points.filter(
      ({ step }) => steps === null || step === undefined || (step >= steps[0] && step <= steps[1])
    );
    return found.some(isThere) ? found : null;
  }

  protected draw(points: readonly IPlanePoint[]): Drawn | IState {
    const { env, kit, options, t, _picture: picture } = this;
    const groups = [...new Set(points.map(groupOf))];
    const hidden = groups.length > 1 ? groups.filter(group => options.hidden.includes(group)) : [];
    const hide = (next: string[]): void => this.choose({ hidden: next } as Partial<O>);
    const coordinates = Float64Array.from(
      points.flatMap(point =>
        isThere(point) && !hidden.includes(groupOf(point)) ? [point.x, point.y] : [NaN, NaN]
      )
    );
    if (coordinates.every(Number.isNaN)) {
      return emptyState(t('Every group here is hidden.'), t('Show all groups'), () => hide([]));
    }
    const [title, numbers] = [
      groups.length > 1 ? kit.group : '',
      points.map(point => groups.indexOf(groupOf(point)))
    ];
    const lookIn = (dark: boolean): IPointLook[] =>
      lineColors(
        groups.map(key => ({ key, layer: null, run: 0 })),
        dark
      ).map(color => ({ color, shape: 'circle' }));
    const { near, shown } = thinned(coordinates, numbers, env.zoom?.isZoomed ? env.zoom.domain : null);
    const nameOf = (at: number): string => points[at]?.name ?? '';
    this._points = points;
    this._titles = { x: saidOf(kit.x, options), y: saidOf(kit.y, options) };
    this._orders.clear();
    const drawn = picture.take(
      {
        coordinates,
        looksOf: dark => {
          const looks = lookIn(dark);
          const key = groups.flatMap((text, at) =>
            groups.length < 2 || hidden.includes(text) ? [] : [{ ...(looks[at] ?? PLAIN), text }]
          );
          return { title, looks: numbers.map(number => looks[number] ?? PLAIN), key };
        },
        titles: this._titles,
        isSquare: kit.isSquare ?? false,
        shown,
        ringed: () => false,
        named: [],
        nameOf,
        textOf: nameOf,
        tipOf: at => this._tipOf(at),
        said: at => this._said(at),
        next: (at, by) => this._next(at, by)
      },
      env.isDark
    );
    const looks = lookIn(env.isDark);
    const entries = groups.map((name, at) => ({
      ...{ id: name, name, color: (looks[at] ?? PLAIN).color },
      isHidden: hidden.includes(name)
    }));
    return {
      ...drawn,
      ...(groups.length > 1 && { legend: { title, entries, hidden: options.hidden, hide } }),
      caption: [
        ...(hidden.length > 0 ? [t('Hidden: %1.', hidden.join(', '))] : []),
        ...(shown.length < near
          ? [
              t(
                'Of %1 points %2 are drawn: of each group some wherever it has any.',
                formatInteger(near),
                formatInteger(shown.length)
              )
            ]
          : [])
      ],
      summary: this._summary()
    };
  }

  private _tipOf(at: number): ITip | null {
    const point = this._points[at];
    const { t, kit, _titles: titles } = this;
    return point
      ? {
          heading: point.name,
          lines: [
            ...(point.group === undefined ? [] : [{ name: kit.group, value: point.group }]),
            { name: titles.x, value: formatNumber(point.x, 4) },
            { name: titles.y, value: formatNumber(point.y, 4) },
            ...(point.step === undefined ? [] : [{ name: t('step'), value: formatInteger(point.step) }])
          ]
        }
      : null;
  }

  private _said(at: number): string {
    const { name = '', group, x = NaN, y = NaN } = this._points[at] ?? {};
    const place = this.t('%1 across, %2 up', formatNumber(x, 3), formatNumber(y, 3));
    return `${[name, ...(group === undefined ? [] : [group])].join(', ')}: ${place}`;
  }

  /** The next point to the right or left, or up or down. */
  private _next(at: number, [across, down]: readonly [number, number]): number {
    const axis = down === 0 ? 'x' : 'y';
    const points = this._points;
    const order =
      this._orders.get(axis) ??
      [...this._picture.points].sort((a, b) => (points[a]?.[axis] ?? 0) - (points[b]?.[axis] ?? 0) || a - b);
    this._orders.set(axis, order);
    return order[hold(order.indexOf(at) + across - down, order.length)] ?? at;
  }

  /** The point farthest from the middle, and how many times as far as the median one; null if all are one. */
  private get _farthest(): { readonly at: number; readonly times: number } | null {
    const { points } = this._picture;
    const away = { x: this._away('x'), y: this._away('y') };
    const far = points.map((_, index) => Math.hypot(away.x[index] ?? 0, away.y[index] ?? 0));
    const [most, median] = [extentOf([far])?.[1] ?? 0, middleOf(far, Infinity)];
    const at = points[far.indexOf(most)];
    return at === undefined || median === 0 ? null : { at, times: most / median };
  }

  /** How far each point is from the middle of one axis; in parts of what the points cover if axes differ. */
  private _away(axis: 'x' | 'y'): number[] {
    const values = this._picture.points.map(at => this._points[at]?.[axis] ?? NaN);
    const [low, high] = extentOf([values]) ?? [0, 1];
    const [middle, unit] = [middleOf(values, Infinity), this.kit.isSquare ? 1 : high - low || 1];
    return values.map(value => (value - middle) / unit);
  }

  private _summary(): string {
    const { kit, t, _titles: titles, _points: points } = this;
    const shown = this._picture.points;
    const left = points.filter(point => !isThere(point)).length;
    const counts = new Map<string, number>();
    shown.forEach(at => {
      const group = points[at]?.group;
      if (group !== undefined) {
        counts.set(group, (counts.get(group) ?? 0) + 1);
      }
    });
    const most = [...counts].sort(([, a], [, b]) => b - a).slice(0, MOST_COUNTED);
    const listed = most.map(([name, count]) => `${name} (${formatInteger(count)})`);
    const ends = (axis: 'x' | 'y'): string[] =>
      (extentOf([shown.map(at => points[at]?.[axis] ?? NaN)]) ?? []).map(end => formatNumber(end, 3));
    const farthest = this._farthest;
    return [
      ...(left > 0 ? [t('Points whose place is not finite, left out: %1.', formatInteger(left))] : []),
      counts.size < 2
        ? t('Points: %1.', formatInteger(shown.length))
        : t(
            'Points: %1; by %2: %3.',
            formatInteger(shown.length),
            kit.group,
            [
              ...listed,
              ...(counts.size > MOST_COUNTED ? [t('%1 more', formatInteger(counts.size - MOST_COUNTED))] : [])
            ].join(', ')
          ),
      t('%1 goes from %2 to %3, %4 from %5 to %6.', titles.x, ...ends('x'), titles.y, ...ends('y')),
      ...(farthest
        ? [
            t(
              'Farthest from the middle is %1: %2 times as far as the median point.',
              points[farthest.at]?.name ?? '',
              formatNumber(farthest.times, 2)
            )
          ]
        : [])
    ].join(' ');
  }

  private readonly _picture = new PointsPicture(this.env);
  private _points: readonly IPlanePoint[] = [];
  private _titles = { x: '', y: '' };
  /** Points in the order in which the keys go along an axis. */
  private readonly _orders = new Map<'x' | 'y', readonly number[]>();
}

const PLAIN: IPointLook = { color: COLORS.neutral, shape: 'circle' };

const groupOf = ({ group = '' }: IPlanePoint): string => group;

const isThere = ({ x, y }: IPlanePoint): boolean => Number.isFinite(x) && Number.isFinite(y);

/**
 * The points to draw where there are very many: of those near what is shown the first of a group in each
 * square of a grid, so that none far out is lost, and of the others as many as there is room for.
 */
function thinned(
  coordinates: Float64Array,
  groups: readonly number[],
  zoomed: Readonly<Record<'x0' | 'x1' | 'y0' | 'y1', number>> | null
): { readonly near: number; readonly shown: number[] } {
  const all = groups.map((_, at) => at).filter(at => !Number.isNaN(coordinates[2 * at]));
  if (all.length <= MOST_DRAWN) {
    return { near: all.length, shown: all };
  }
  const { x0, x1, y0, y1 } = zoomed ?? { x0: -Infinity, x1: Infinity, y0: -Infinity, y1: Infinity };
  // What is shown, and as much on either side. The picture counts downwards.
  const isNear = (value: number, from: number, to: number): boolean =>
    zoomed === null || (value >= 2 * from - to && value <= 2 * to - from);
  const there = all.filter(
    at => isNear(coordinates[2 * at] ?? NaN, x0, x1) && isNear(-(coordinates[2 * at + 1] ?? NaN), y0, y1)
  );
  const ends = (axis: number): readonly [number, number] =>
    extentOf([there.map(at => coordinates[2 * at + axis] ?? NaN)]) ?? [0, 1];
  const [[left, right], [low, high]] = [ends(0), ends(1)];
  let kept = there;
  for (let side = FINEST; kept.length > MOST_DRAWN && side >= COARSEST; side /= 2) {
    const taken = new Set<number>();
    const placeOf = (value: number, from: number, to: number): number =>
      Math.min(side - 1, Math.floor((side * (value - from)) / (to - from || 1)));
    kept = there.filter(at => {
      const across = placeOf(coordinates[2 * at] ?? NaN, left, right);
      const up = placeOf(coordinates[2 * at + 1] ?? NaN, low, high);
      const square = ((groups[at] ?? 0) * side + up) * side + across;
      const isNew = !taken.has(square);
      taken.add(square);
      return isNew;
    });
  }
  const others = there.length - kept.length;
  const every = Math.ceil(others / Math.max(1, MOST_DRAWN - kept.length));
  const first = new Set(kept);
  let passed = 0;
  const shown = others === 0 ? kept : there.filter(at => first.has(at) || passed++ % every === 0);
  return { near: there.length, shown };
}

/** A view of points of a plane, in groups. */
export const points = <O extends KitPointOptions>(kit: IPointsKit<O>): IViewDefinition<O> => ({
  create: (source, env) => new PointsView(source, env, kit)
});

/**
 * Rows of a stream as points, one a row.
 *
 * @param names - Names of the columns that hold what a point is called, its place, and what else is known.
 */
export function pointsOf(
  rows: IStreamRows,
  names: Readonly<Record<'name' | 'x' | 'y', string> & Partial<Record<'group' | 'layer' | 'step', string>>>
): IPlanePoint[] {
  const column = (name?: string): ArrayLike<unknown> | undefined => columnOf(rows, name);
  const [named, xs, ys] = [column(names.name), column(names.x), column(names.y)];
  const [groups, layers, steps] = [column(names.group), column(names.layer), column(names.step)];
  return Array.from({ length: rows.length }, (_, row) => {
    const [group, layer, step] = [groups?.[row], layers?.[row], steps?.[row]];
    return {
      name: String(named?.[row] ?? ''),
      x: Number(xs?.[row] ?? NaN),
      y: Number(ys?.[row] ?? NaN),
      ...(group !== undefined && { group: String(group) }),
      ...(layer !== undefined && { layer: Number(layer) }),
      ...(step !== undefined && { step: Number(step) })
    };
  });
}
