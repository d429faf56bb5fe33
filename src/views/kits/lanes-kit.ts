import { COLORS, formatInteger, formatNumber, timeWords, type Row } from '../../charts';
import type { TimelineOptions } from '../../protocol/views.generated';
import type { IStreamRows } from '../../store/row-store';
import type { IPointed } from '../../store/run-link';
import type { IMark } from '../shared/content';
import type { IViewDefinition } from '../shared/definition';
import type { ILinkedMarks, IStepAxis } from '../shared/links';
import { rangeOf } from '../shared/links';
import { nearestIndex } from '../shared/scale';
import type { ITip } from '../shared/table';
import { columnOf, KitView, saidOf, type Drawn, type IKit, type Said } from './kit';
import { joinNarrow, type Joined } from './lanes/join-narrow';
import { LanePicture } from './lanes/lane-picture';
import { nestedLanes, type ILaneSpan, type INestedLanes, type INestedSpan } from './lanes/nested-spans';
import { ordinalColors } from './lines/legend';

/** Options that a view of lanes has beside its own; see `kitOptions`. */
export type KitLaneOptions = Pick<Required<TimelineOptions>, 'hidden' | 'steps'>;

export interface ILanesKit<O extends object> extends IKit<O, readonly ILaneSpan[]> {
  /** What time is counted from: the title of its axis. */
  readonly since: Said<O>;
  /** What a lane is, and what a kind is. */
  readonly lane: string;
  readonly legend: string;
}

/** Pixels of a lane and of what lies in it at most, of all at most, and of a name. */
const HEIGHT = { lane: 22, depth: 13, least: 4, most: 900, label: 13 };
/** Pixels of a letter of what is written on a span. */
const LETTER = 6;
/** Part of a lane on either side of its middle that spans fill. */
const HALF = 0.44;
const MOST_KINDS = 4;
/** Most spans of one layer that are marked when another view points at it. */
const MOST_MARKS = 20;

/** Spans of time in lanes that a view of another package reads. */
class KitLanes<O extends KitLaneOptions> extends KitView<O, readonly ILaneSpan[], ILanesKit<O>> {
  override readonly zooms = { axes: 'x', least: 1e-6 } as const;

  protected override get drawn(): LanePicture<Joined<INestedSpan>> {
    return this._picture;
  }

  protected override within(
    spans: readonly ILaneSpan[],
    steps: readonly [number, number] | null
  ): readonly ILaneSpan[] | null {
    const [first, last] = steps ?? [-Infinity, Infinity];
    const found = spans.filter(({ step }) => step === undefined || (step >= first && step <= last));
    return found.length === 0 ? null : found;
  }

  protected draw(spans: readonly ILaneSpan[]): Drawn {
    const { env, kit, options, t } = this;
    const { hidden } = options;
    const lanes = (this._lanes = nestedLanes(spans, hidden));
    const { depths, kinds, names, x } = lanes;
    const [from, to] = env.zoom?.isZoomed ? [env.zoom.domain.x0, env.zoom.domain.x1] : x;
    const pixel = (to - from) / Math.max(1, env.width);
    const window = [2 * from - to, 2 * to - from] as const;
    const pieces = lanes.spans.flatMap(each => joinNarrow(each, window, pixel));
    const wished = Math.max(HEIGHT.lane, HEIGHT.depth * depths);
    const height = Math.max(HEIGHT.least, Math.min(wished, HEIGHT.most / names.length));
    const every = Math.ceil(HEIGHT.label / height);
    const part = (2 * HALF) / depths;
    const colors = { light: ordinalColors(kinds.length, false), dark: ordinalColors(kinds.length, true) };
    const colorOf = (kind: string, dark: boolean): string =>
      colors[dark ? 'dark' : 'light'][kinds.indexOf(kind)] ?? COLORS.neutral;
    const labels = (): Row[] =>
      pieces.flatMap(({ begin, end, count, depth, kind, lane, name = kind }) =>
        count > 1 || part * height < HEIGHT.label - 2 || name.length * LETTER * pixel > end - begin
          ? []
          : [{ x: (begin + end) / 2, y: lane - HALF + (depth + 0.5) * part, text: name, gap: 0 }]
      );
    return {
      ...this._picture.draw({
        template: 'timeline',
        pieces,
        x,
        rows: names.length,
        names: Object.fromEntries(names.entries()),
        ticks: [...names.keys()].filter(at => at % every === 0),
        height: names.length * height,
        texts: { xTitle: saidOf(kit.since, options), yTitle: kit.lane, colorTitle: kit.legend },
        kinds: kinds.map(id => ({ id, name: id })),
        hidden,
        hide: next => this.choose({ hidden: next } as Partial<O>),
        colorOf,
        bars: ({ depth, kind, lane }, dark) => [
          { y: lane - HALF + depth * part, y2: lane + HALF, color: colorOf(kind, dark) }
        ],
        words: piece =>
          t('%1: %2, %3', names[piece.lane] ?? '', this._what(piece), timeWords(piece.end - piece.begin)),
        tip: piece => this._tip(piece, colorOf(piece.kind, env.isDark)),
        more: dark => {
          const { muted, strong } = COLORS.ink[dark ? 'dark' : 'light'];
          return {
            params: { stepColor: muted, linkColor: strong, foundColor: strong },
            datasets: { steps: [], clocks: [], links: [], labels: labels(), found: [] }
          };
        }
      }),
      caption: this._caption(
        pieces,
        kinds.filter(kind => hidden.includes(kind))
      ),
      summary: this._summary(lanes)
    };
  }

  override pointedBy(mark: IMark): IPointed {
    const piece = this._picture.at(mark);
    const { step = null, layer = null } = piece?.count === 1 ? piece : {};
    return { step, layer };
  }

  override marksOf({ layer, step }: IPointed): ILinkedMarks {
    const span = step === null ? null : this._spanOf([step, step]);
    const found = this._picture.pieces.filter(each => layer !== null && each.layer === layer);
    return {
      marks: [
        ...(span ? [{ facet: null, x: span, y: null }] : []),
        ...found.slice(0, MOST_MARKS).map(each => this._picture.markOf(each))
      ]
    };
  }

  /** Where spans say their steps. */
  override stepAxis(): IStepAxis | undefined {
    const steps = this._steps;
    const numbers = steps.map(({ step }) => step);
    return steps.length === 0
      ? undefined
      : {
          stepsIn: ([from, to]) =>
            rangeOf(steps.filter(({ begin, end }) => begin >= from && end <= to).map(({ step }) => step)),
          spanOf: ([first, last]) => {
            const { begin = 0, end = 0 } = steps[nearestIndex(numbers, (first + last) / 2)] ?? {};
            return this._spanOf([first, last]) ?? [begin, end];
          }
        };
  }

  override insight(): IMark | null {
    const longest = this._longest();
    return longest && this._picture.markOf(longest);
  }

  private _what({ count, kind, name = '' }: Joined<INestedSpan>): string {
    return count > 1 ? this.t('%1 spans', formatInteger(count)) : name === '' ? kind : name;
  }

  private _tip(piece: Joined<INestedSpan>, color: string): ITip {
    const { t } = this;
    const { begin, count, end, kind, lane, name = '', step } = piece;
    return {
      heading: this._lanes?.names[lane] ?? '',
      lines: [
        { name: this._what(piece), value: timeWords(end - begin), color },
        ...(count > 1 || name === '' ? [] : [{ name: this.kit.legend, value: kind }]),
        ...(count > 1 || step === undefined ? [] : [{ name: t('step'), value: formatInteger(step) }]),
        { name: t('from'), value: timeWords(begin) }
      ]
    };
  }

  private _caption(pieces: readonly Joined<INestedSpan>[], hidden: readonly string[]): string[] {
    const { t } = this;
    return [
      ...(pieces.some(({ count }) => count > 1)
        ? [t('Spans narrower than a pixel are joined: zoom in to see each.')]
        : []),
      ...(hidden.length > 0 ? [t('Hidden: %1.', hidden.join(', '))] : [])
    ];
  }

  private _summary({ left, names, spans, taken }: INestedLanes): string {
    const { t } = this;
    const count = spans.reduce((sum, lane) => sum + lane.length, 0);
    const longest = this._longest();
    const all = [...taken.values()].reduce((sum, each) => sum + each, 0);
    const shares = [...taken]
      .sort((a, b) => b[1] - a[1])
      .map(([kind, ms]) => `${kind} ${formatNumber((100 * ms) / all, 3)} %`);
    const [lanes, number] = [formatInteger(names.length), formatInteger(count)];
    return [
      left > 0
        ? t('Left out, because their times are not finite or end before they begin: %1.', formatInteger(left))
        : '',
      names.length === 1
        ? t('%1 spans in %2 lane.', number, lanes)
        : t('%1 spans in %2 lanes.', number, lanes),
      longest
        ? t(
            'Longest: %1 in %2, %3.',
            longest.name || longest.kind,
            names[longest.lane] ?? '',
            timeWords(longest.end - longest.begin)
          )
        : '',
      all > 0
        ? t(
            'Of their time: %1.',
            [...shares.slice(0, MOST_KINDS), ...(shares.length > MOST_KINDS ? ['…'] : [])].join(', ')
          )
        : ''
    ]
      .filter(Boolean)
      .join(' ');
  }

  private _longest(): INestedSpan | null {
    const all = this._lanes?.spans.flat() ?? [];
    return all.reduce<INestedSpan | null>(
      (most, each) => (most && most.end - most.begin >= each.end - each.begin ? most : each),
      null
    );
  }

  /** From where to where steps go that are here, ascending. */
  private get _steps(): { step: number; begin: number; end: number }[] {
    const steps = new Map<number, { step: number; begin: number; end: number }>();
    for (const { step, begin, end } of this._lanes?.spans.flat() ?? []) {
      if (step !== undefined) {
        const before = steps.get(step) ?? { begin, end };
        steps.set(step, { step, begin: Math.min(begin, before.begin), end: Math.max(end, before.end) });
      }
    }
    return [...steps.values()].sort((a, b) => a.step - b.step);
  }

  private _spanOf([first, last]: readonly [number, number]): [number, number] | null {
    const inside = this._steps.filter(({ step }) => step >= first && step <= last);
    return inside.length === 0
      ? null
      : [Math.min(...inside.map(({ begin }) => begin)), Math.max(...inside.map(({ end }) => end))];
  }

  private readonly _picture = new LanePicture<Joined<INestedSpan>>(this.env);
  private _lanes: INestedLanes | null = null;
}

/** A view of spans of time in lanes, coloured by their kinds. */
export const lanes = <O extends KitLaneOptions>(kit: ILanesKit<O>): IViewDefinition<O> => ({
  create: (source, env) => new KitLanes(source, env, kit)
});

/** Columns of a stream that hold spans. */
interface ISpanColumns {
  readonly lane: string;
  readonly begin: string;
  readonly end: string;
  readonly kind: string;
  readonly name?: string;
  readonly step?: string;
  readonly layer?: string;
}

/**
 * Rows of a stream as spans.
 *
 * @param columns - Names of the columns.
 * @param ms - How many milliseconds a unit of time in them is: 1e-6 for nanoseconds.
 */
export function lanesOf(rows: IStreamRows, named: ISpanColumns, ms = 1): ILaneSpan[] {
  const column = (name?: string): ArrayLike<unknown> | undefined => columnOf(rows, name);
  const [lane, kind, name] = [column(named.lane), column(named.kind), column(named.name)];
  const [begin, end] = [column(named.begin), column(named.end)];
  const [step, layer] = [column(named.step), column(named.layer)];
  return Array.from({ length: rows.length }, (_, at) => ({
    lane: String(lane?.[at] ?? ''),
    begin: Number(begin?.[at] ?? NaN) * ms,
    end: Number(end?.[at] ?? NaN) * ms,
    kind: String(kind?.[at] ?? ''),
    ...(name && { name: String(name[at] ?? '') }),
    ...(step && { step: Number(step[at]) }),
    ...(layer && { layer: Number(layer[at]) })
  }));
}
