import { formatInteger, type Row, timeWords } from '../../../charts';
import type { TimelineRequest } from '../../../protocol/requests.generated';
import type { IMark, IMinimap, INote } from '../../../views/shared/content';
import { KINDS, kindColor } from '../../../views/shared/span-kinds';
import { type ITable, numberColumn, tableOf } from '../../../views/shared/table';
import type { Translate } from '../../../views/shared/translate';
import type { IFoundSpan, IPiece, ISum, ITimelineAnswer } from '../client/timeline-api';
import { HALF, kindWords } from './lanes';

/** Columns of the minimap. */
export const MAP_COLUMNS = 600;
/** Kinds that take more of a column than this are seen in the minimap. */
const LEAST = 0.02;
/** By how much the recorded time has grown when the minimap is read again. */
const GROWN = 1.02;
/** How many of the spans that are found an answer holds. */
const PAGE = 200;

/** Parts of the time of all lanes that each kind takes, by columns of the whole time. */
function minimapLayers(
  { pieces, lanes, whole: [from, to] }: ITimelineAnswer,
  isDark: boolean
): IMinimap['layers'] {
  const column = (to - from) / MAP_COLUMNS;
  const parts = new Map<string, Float64Array>();
  for (const { kind, begin, end } of pieces) {
    const mine = parts.get(kind) ?? new Float64Array(MAP_COLUMNS);
    parts.set(kind, mine);
    const last = Math.min(MAP_COLUMNS - 1, Math.floor((end - from) / column));
    for (let at = Math.max(0, Math.floor((begin - from) / column)); at <= last; at += 1) {
      const inside = Math.min(end, from + (at + 1) * column) - Math.max(begin, from + at * column);
      mine[at]! += Math.max(0, inside) / column / Math.max(1, lanes.length);
    }
  }
  return KINDS.flatMap(kind => {
    const mine = parts.get(kind);
    return mine?.some(part => part > LEAST) ? [{ color: kindColor(kind, isDark), parts: mine }] : [];
  });
}

/** An answer of the whole time, while a part of it is drawn, as a minimap. */
export class Overview {
  constructor(
    private readonly _t: Translate,
    private readonly _choose: (steps: [number, number]) => void
  ) {}

  /** Whether much more is recorded than it shows. */
  isBehind({ whole }: ITimelineAnswer): boolean {
    return !this._all || whole[1] > GROWN * this._all.whole[1] || whole[1] < this._all.whole[1];
  }

  keep(answer: ITimelineAnswer): void {
    this._all = answer;
    this._layers.clear();
  }

  /** The minimap; nothing before there is an answer. */
  draw({ there, chosen, stepMs, whole }: ITimelineAnswer, isDark: boolean): { minimap?: IMinimap } {
    const { _all: all, _t: t } = this;
    if (!all) {
      return {};
    }
    const layers = this._layers.get(isDark) ?? minimapLayers(all, isDark);
    this._layers.set(isDark, layers);
    // Steps that were not looked at are as long as the others, as far as is known.
    const step = Number.isFinite(stepMs) ? stepMs : 0;
    const extent = [
      whole[0] - step * (chosen[0] - there[0]),
      whole[1] + step * (there[1] - chosen[1])
    ] as const;
    const stepAt = (ms: number): number => {
      const from = ms < whole[0] ? chosen[0] + (ms - whole[0]) / step : chosen[1] + (ms - whole[1]) / step;
      return Math.min(there[1], Math.max(there[0], Math.round(from)));
    };
    return {
      minimap: {
        label: t('Shown of all recorded time'),
        extent,
        read: all.whole,
        layers,
        words: ([from, to]) => t('%1 to %2', timeWords(from), timeWords(to)),
        beyond: ([from, to]) => this._choose([stepAt(from), stepAt(to)])
      }
    };
  }

  private _all: ITimelineAnswer | null = null;
  private readonly _layers = new Map<boolean, IMinimap['layers']>();
}

/** Spans that a box over the lanes holds, summed by name. */
export class Selection {
  constructor(
    private readonly _t: Translate,
    private readonly _copy: (text: string) => void | Promise<void>,
    private readonly _clear: () => void
  ) {}

  /** What is chosen, by whole lanes; null where nothing is. */
  mark: IMark | null = null;

  choose(box: IMark | null, lanes: number): void {
    const [low, high] = box?.y ?? [0, 0];
    const hold = (lane: number): number => Math.min(lanes - 1, Math.max(0, Math.round(lane)));
    // A box from edge to edge of a lane is that lane.
    const rows = [hold(low + 0.01) - 0.5, hold(high - 0.01) + 0.5] as const;
    this.mark = box && box.x[1] > box.x[0] ? { facet: null, x: box.x, y: rows } : null;
    this._isSaid = false;
  }

  asked(lanes: ITimelineAnswer['lanes']): Partial<TimelineRequest> {
    return this.mark ? { sums: this.mark.x, sums_ranks: this._ranks(lanes).join(',') } : {};
  }

  /** The table of the sums and what is said of them; nothing where nothing is chosen. */
  draw(
    { sums, lanes }: ITimelineAnswer,
    say: (text: string) => void
  ): { readonly notes: readonly INote[]; readonly body?: ITable } {
    const { mark, _t: t } = this;
    if (!mark) {
      return { notes: [] };
    }
    const clear = { label: t('Clear the selection'), run: this._clear };
    if (sums === undefined) {
      return {
        notes: [{ text: t('Spans are summed where the recording is; here it is not.'), action: clear }]
      };
    }
    const ranks = this._ranks(lanes).length;
    const text = t(
      ranks === 1 ? '%1 selected on %2 rank: %3 spans.' : '%1 selected on %2 ranks: %3 spans.',
      timeWords(mark.x[1] - mark.x[0]),
      formatInteger(ranks),
      formatInteger(sums.reduce((all, { count }) => all + count, 0))
    );
    if (!this._isSaid) {
      this._isSaid = true;
      say([text, ...sums.slice(0, 3).map(each => `${nameOf(each, t)} ${timeWords(each.total)}`)].join(' '));
    }
    const copy = { label: t('Copy the sums'), run: () => void this._copy(sumsText(sums, t)) };
    return { notes: [{ text, action: copy, more: [clear] }], body: sumsTable(sums, t) };
  }

  private _ranks(lanes: ITimelineAnswer['lanes']): number[] {
    const [low, high] = this.mark?.y ?? [0, 0];
    return lanes.slice(Math.ceil(low), Math.floor(high) + 1).map(({ rank }) => rank);
  }

  private _isSaid = false;
}

const nameOf = ({ kind, name }: ISum, t: Translate): string => (name === '' ? kindWords(kind, t) : name);

const sumsTable = (sums: readonly ISum[], t: Translate): ITable =>
  tableOf(sums, [
    { title: t('name'), text: sum => nameOf(sum, t), sortBy: sum => nameOf(sum, t) },
    { title: t('kind'), text: ({ kind }) => kindWords(kind, t), sortBy: ({ kind }) => kind },
    numberColumn(t('count'), ({ count }) => count, formatInteger),
    numberColumn(t('total'), ({ total }) => total, timeWords),
    numberColumn(t('mean'), ({ count, total }) => total / count, timeWords)
  ]);

/** As a table program takes it, all digits. */
function sumsText(sums: readonly ISum[], t: Translate): string {
  const rows = sums.map(each =>
    [nameOf(each, t), each.kind, each.count, each.total, each.total / each.count].join('\t')
  );
  return [[t('name'), t('kind'), t('count'), t('total, ms'), t('mean, ms')].join('\t'), ...rows].join('\n');
}

/** Spans that have a text in their name: which of them is shown, and the way to the others. */
export class Search {
  /** Number of the one that is shown; -1 before one is. */
  at = -1;

  asked(): Pick<TimelineRequest, 'found_from'> {
    const from = PAGE * Math.floor(Math.max(0, this.at) / PAGE);
    return from === 0 ? {} : { found_from: from };
  }

  /** Go on by one, or back; from the last to the first. */
  turn(by: 1 | -1, { found: { count } }: ITimelineAnswer): void {
    this.at = this.at < 0 && by < 0 ? count - 1 : (this.at + by + count) % Math.max(1, count);
  }

  /** The one that is shown; undefined where the answer does not hold it. */
  shown({ found }: ITimelineAnswer): IFoundSpan | undefined {
    return found.first[this.at - found.since];
  }

  /** Which one is shown, in words. */
  words({ found }: ITimelineAnswer, { rank, step }: IFoundSpan, t: Translate): string {
    const [at, count] = [formatInteger(this.at + 1), formatInteger(found.count)];
    return t('%1 of %2: rank %3, step %4', at, count, formatInteger(rank), formatInteger(step));
  }

  note(
    answer: ITimelineAnswer,
    find: string,
    turn: (by: 1 | -1) => void,
    clear: () => void,
    t: Translate
  ): INote {
    const { count } = answer.found;
    const shown = this.shown(answer);
    const all = t('%1 spans have “%2” in their name.', formatInteger(count), find);
    const text = shown ? `${all} ${this.words(answer, shown, t)}.` : all;
    const end = { label: t('Clear'), run: clear };
    return count === 0
      ? { text, action: end }
      : {
          text,
          action: { label: t('Previous'), run: () => turn(-1) },
          more: [{ label: t('Next'), run: () => turn(1) }, end]
        };
  }
}

/** Outlines of the spans that are searched for: those listed, and those drawn one by one. */
export function foundRows({ found, lanes }: ITimelineAnswer, pieces: readonly IPiece[], find: string): Row[] {
  if (find === '') {
    return [];
  }
  const laneOf = new Map(lanes.map(({ rank }, at) => [rank, at]));
  const wanted = find.toLowerCase();
  const drawn = pieces.filter(
    ({ row, name, kind }) => row >= 0 && (name.toLowerCase().includes(wanted) || kind.includes(wanted))
  );
  const listed = found.first.map(each => ({ ...each, lane: laneOf.get(each.rank) ?? -1 }));
  const places = new Map(
    [...drawn, ...listed].map(({ lane, begin, end }) => [
      `${lane} ${begin.toFixed(6)}`,
      { x: begin, x2: end, y: lane - HALF, y2: lane + HALF }
    ])
  );
  return [...places.values()];
}
