import { COLORS, formatInteger, type IPlace, type IRecipe, type Row, timeWords } from '../../../charts';
import type { TimelineOptions } from '../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../store/source';
import type { IContent, IMark, IMoved, INote, Loaded } from '../../../views/shared/content';
import { type Control, selectControl } from '../../../views/shared/control';
import { goControl } from '../../../views/shared/controls';
import { chip, rangesField, type ITip } from '../../../views/shared/table';
import type { ILegend } from '../../../views/kits/lines/legend';
import { loadSentences, said } from '../../../views/shared/said';
import { ViewModel, type IViewEnvironment } from '../../../views/shared/view-model';
import { hold, moveOf, axisParams } from '../../../views/shared/scale';
import { KINDS, kindColor } from '../../../views/shared/span-kinds';
import type { IViewDefinition } from '../../../views/shared/definition';
import {
  TIMELINE,
  type IFoundSpan,
  type IPiece,
  type ITimelineAnswer,
  type ITimelineLane
} from '../client/timeline-api';
import {
  captionOf,
  clockRow,
  HALF,
  labelRows,
  laneCount,
  lanesHeight,
  MOST_SENTENCES,
  summaryOf,
  titleOf,
  namedLanes,
  pathRows,
  stepRows,
  kindWords,
  laneWords,
  pieceTip
} from './lanes';
import {
  holderWords,
  isMemory,
  MEMORY,
  memoryRows,
  memorySummary,
  memoryTip,
  memoryWords,
  withoutMemory
} from './memory-lanes';
import { foundRows, MAP_COLUMNS, Overview, Search, Selection } from './lane-tools';
import { nothingState } from './nothing';
import { SlowMap } from './slow-map';
import type { TimelineRequest } from '../../../protocol/requests.generated';

/** How much more than is seen is asked for on either side, so that a drag finds something there. */
const AROUND = 1;
/** What each rank does in its steps, all ranks on one clock, and who makes the others wait. */
class TimelineView extends ViewModel<TimelineOptions> {
  constructor(source: IRunSource, env: IViewEnvironment<TimelineOptions>) {
    super(source, env);
  }

  override readonly zooms = { axes: 'x', least: 1e-3 } as const;
  override readonly choosesBoxes = true as const;

  readonly subject = this.t('Timeline of ranks');

  concerns(change: SourceChange): boolean {
    return change.kind === 'rows' && ['spans', 'memory'].includes(change.stream);
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const all = await this._ask(signal);
    this._hasMemory = all?.memory !== undefined;
    const answer = all && this.options.hidden.includes(MEMORY) ? withoutMemory(all) : all;
    this._answer = answer;
    const wanted = this._wanted && answer ? this._search.shown(answer) : undefined;
    this._wanted = false;
    if (answer && wanted) {
      this._goToFound(answer, wanted);
    }
    if (answer === null) {
      const newest = (): void => this.choose({ steps: null });
      return {
        state: await nothingState(this.source, this.options, this.actions, newest, this.t, signal)
      };
    }
    const texts = {
      title: titleOf(answer, this.t),
      caption: [...captionOf(answer, this._isMap, this.t), ...holderWords(answer, this.t)],
      summary: [summaryOf(answer, this.t), ...memorySummary(answer, this.t)].join(' '),
      notes: [
        ...answer.culprits.slice(0, MOST_SENTENCES).map(each => this._note(each)),
        ...(this.options.find === '' || this._isMap ? [] : [this._foundNote(answer)])
      ]
    };
    if (this._isMap) {
      return { content: { ...texts, ...this._slow.draw(answer, this.env.isDark) } };
    }
    const { notes, ...sums } = this._selection.draw(answer, text => this.env.say(text));
    return {
      content: {
        ...texts,
        ...this._lanes(answer),
        ...sums,
        notes: [...texts.notes, ...notes],
        ...this._overview.draw(answer, this.env.isDark),
        keys: this.t(
          'w and s zoom, a and d move, arrows go from span to span, n and N to what is found. Shift and arrows, or a drag, sum spans; Esc lets go.'
        )
      }
    };
  }

  private _lanes(answer: ITimelineAnswer): Pick<IContent, 'extent' | 'legend' | 'printed' | 'recipe'> {
    const { t } = this;
    const count = laneCount(answer);
    const extent = { x: answer.whole, y: [-0.5, count - 0.5] as const };
    const hidden = new Set(this.options.hidden);
    const spans = answer.pieces.filter(({ kind }) => !hidden.has(kind));
    this._pieces = [...spans, ...(answer.memory?.pieces ?? [])];
    const recipeIn = (dark: boolean): IRecipe => {
      const { entries, title } = this._legend(answer, dark);
      const ink = COLORS.ink[dark ? 'dark' : 'light'];
      const key = entries.filter(({ isHidden }) => !isHidden);
      return {
        template: 'timeline',
        texts: {
          xTitle: t('since step %1 began', formatInteger(answer.chosen[0])),
          yTitle: t('rank'),
          colorTitle: title
        },
        params: {
          ...axisParams(extent.x, extent.y),
          rowNames: Object.fromEntries(
            [
              ...answer.lanes.map(({ rank }) => formatInteger(rank)),
              ...(answer.memory?.ranks ?? []).map(rank => t('memory %1', formatInteger(rank)))
            ].entries()
          ),
          rowTicks: namedLanes(answer),
          stepColor: ink.muted,
          linkColor: ink.strong,
          foundColor: ink.strong,
          keyText: key.map(({ name }) => name)
        },
        datasets: {
          pieces: this._pieces.flatMap(each => this._rows(each, dark)),
          steps: stepRows(answer, this.env.width),
          clocks: answer.lanes.flatMap((lane, at) => clockRow(answer, lane, at)),
          links: [...this._links(answer), ...pathRows(answer)],
          labels: labelRows(answer, hidden, this.env.width, t),
          found: foundRows(answer, spans, this.options.find),
          key: key.map(({ color }, index) => ({ place: index, color }))
        },
        height: lanesHeight(answer)
      };
    };
    const { isDark } = this.env;
    return {
      legend: this._legend(answer, isDark),
      extent,
      recipe: recipeIn(isDark),
      printed: (dark = false) => recipeIn(dark)
    };
  }

  override controls(): Control[] {
    const { options, t } = this;
    return [
      { kind: 'name', id: 'run', text: this.source.name },
      selectControl('kind', t('Draw'), options.kind, { lanes: t('lanes'), map: t('rank × step') }, kind =>
        this.choose({ kind })
      ),
      rangesField('ranks', t('Ranks'), options.ranks, [], ranks => this.choose({ ranks })),
      goControl(step => this._goTo(step), t),
      ...(this._isMap
        ? []
        : [
            {
              kind: 'text',
              id: 'find',
              label: t('Find'),
              value: options.find,
              suggestions: [],
              valid: (text: string) => text.length <= 200,
              change: (find: string) => {
                this._search.at = -1;
                this.choose({ find });
              }
            } as const,
            {
              kind: 'toggle',
              id: 'path',
              text: t('Critical path'),
              title: t('Draw what each step waited for from its end back to its beginning'),
              pressed: options.path,
              change: (path: boolean) => this.choose({ path })
            } as const
          ]),
      ...(options.steps
        ? [
            chip(
              'steps',
              t('steps %1 to %2', formatInteger(options.steps[0] ?? 0), formatInteger(options.steps[1] ?? 0)),
              t('Show the newest steps'),
              () => this.choose({ steps: null })
            )
          ]
        : [])
    ];
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  override probe(point: IPlace): IMark | null {
    if (this._isMap) {
      return this._slow.probe(point);
    }
    const { x, y } = point;
    const lane = Math.round(y);
    const under = this._pieces.filter(each => each.lane === lane && each.begin <= x && each.end >= x);
    // What lies deeper is drawn over the others.
    const piece = under.at(-1);
    return piece ? markOf(piece) : null;
  }

  override tipOf(mark: IMark): ITip | null {
    if (this._isMap) {
      return this._slow.tipOf(mark);
    }
    const piece = this._at(mark);
    if (piece && isMemory(piece)) {
      return memoryTip(piece, this._rankOf(piece), this.env.isDark, this.t);
    }
    const lane = piece && this._answer?.lanes[piece.lane];
    return lane ? pieceTip(piece, lane, this.env.isDark, this.t) : null;
  }

  override move(key: string): IMoved | null {
    if (this._isMap) {
      return this._slow.move(key);
    }
    if (key.toLowerCase() === 'n' && this.options.find !== '') {
      return this._turn(key === 'n' ? 1 : -1);
    }
    const by = moveOf(key);
    const answer = this._answer;
    if (by === undefined || !answer || answer.lanes.length === 0) {
      return null;
    }
    const before = this._cursor;
    const lane = hold((before?.lane ?? 0) + (before ? by[1] : 0), laneCount(answer));
    const inside = this._pieces.filter(each => each.lane === lane).sort((a, b) => a.begin - b.begin);
    const near = inside.findIndex(each => each.end > (before?.begin ?? 0));
    const at = hold((near < 0 ? inside.length - 1 : near) + (before ? by[0] : 0), inside.length);
    const piece = inside[at];
    if (piece === undefined) {
      return null;
    }
    this._cursor = piece;
    this.env.zoom?.reveal((piece.begin + piece.end) / 2, lane);
    const mark = markOf(piece);
    const words = this._words(piece, answer.lanes[lane]);
    return key === 'copy' ? { said: words, mark, copy: words } : { said: words, mark };
  }

  /** What the span depends on is drawn; of a cell of the map its steps are. */
  override clicked(mark: IMark): void {
    if (this._isMap) {
      const [first, last] = this._slow.stepsOf(mark);
      this.choose({ kind: 'lanes', steps: [Math.max(0, first - 1), last + 1] });
      return;
    }
    if (this._answer?.isDraft) {
      // What it depends on is not all there.
      return;
    }
    const row = this._at(mark)?.row ?? -1;
    this._chosen = row < 0 || row === this._chosen ? null : row;
    this.env.refresh(true);
  }

  override boxed(box: IMark | null): void {
    if (!this._isMap && (box || this._selection.mark)) {
      this._selection.choose(box, this._answer?.lanes.length ?? 0);
      this.env.place();
      this.env.refresh(true);
    }
  }

  override pinned(): IMark | null {
    if (this._selection.mark && !this._isMap) {
      return this._selection.mark;
    }
    const piece = this._chosen === null ? undefined : this._pieces.find(each => each.row === this._chosen);
    return piece ? markOf(piece) : null;
  }

  private async _ask(signal: AbortSignal): Promise<ITimelineAnswer | null> {
    const { env, options, source } = this;
    const steps = env.within(options.steps as [number, number] | null);
    const key = JSON.stringify([options.ranks, options.kind, steps]);
    const shown = env.zoom?.isZoomed && key === this._key && !this._isMap ? env.zoom.domain : null;
    const across = shown ? shown.x1 - shown.x0 : 0;
    const wide = shown ? 1 + 2 * AROUND : 1;
    const request: TimelineRequest = {
      ranks: options.ranks,
      columns: Math.round(Math.max(200, env.width) * wide),
      ...(steps ? { first: steps[0], last: steps[1] } : {}),
      ...(shown ? { window: [shown.x0 - AROUND * across, shown.x1 + AROUND * across] as const } : {}),
      ...(this._chosen === null ? {} : { row: this._chosen }),
      ...(options.path ? { path: true } : {}),
      ...(options.find === '' ? {} : { find: options.find, ...this._search.asked() }),
      ...(key === this._key && this._answer ? this._selection.asked(this._answer.lanes) : {})
    };
    const ask = source.asker?.(TIMELINE);
    const draft = !this._isMap && key !== this._judged;
    const [answer = null] = await Promise.all([
      ask?.(draft ? { ...request, draft } : request, signal),
      loadSentences()
    ]);
    if (key !== this._key || answer?.chosen[0] !== this._answer?.chosen[0]) {
      // Its times were those of other steps.
      this._selection.choose(null, 0);
    }
    this._key = key;
    await this._survey(answer, request, signal);
    if (answer && !answer.isDraft) {
      this._judged = key;
    } else if (answer && key !== this._judging) {
      this._judging = key;
      // It goes on while the lanes are panned, and whoever asks after it is answered at once.
      const done = (): void => void ((this._judging = ''), (this._judged = key));
      env.follow(Promise.resolve(ask?.(request)).finally(done));
    }
    return answer;
  }

  /** Keep an answer of the whole time for the minimap, also while a part of it is drawn. */
  private async _survey(
    answer: ITimelineAnswer | null,
    { window, row: _r, path: _p, find: _f, found_from: _n, sums: _s, ...request }: TimelineRequest,
    signal: AbortSignal
  ): Promise<void> {
    const { source } = this;
    if (!answer || this._isMap) {
      return;
    }
    if (!window) {
      this._overview.keep(answer);
    } else if (this._overview.isBehind(answer)) {
      const whole = await source.asker?.(TIMELINE)?.({ ...request, columns: MAP_COLUMNS }, signal);
      if (whole) {
        this._overview.keep(whole);
      }
    }
  }

  private _goTo(step: number): void {
    const found = this._answer?.steps.find(([number]) => number === step);
    if (this._isMap) {
      this.env.goTo({ facet: null, x: [step - 0.5, step + 0.5], y: null });
    } else if (found) {
      this.env.goTo({ facet: null, x: [found[1], found[2]], y: null });
    } else {
      this.choose({ steps: [step, step] });
    }
  }

  private _note(culprit: ITimelineAnswer['culprits'][number]): INote {
    const { first, last } = culprit;
    const [from] = this._answer?.chosen ?? [first];
    const run = (): void =>
      this.choose({ kind: 'lanes', steps: [Math.max(from, first - 1), Math.min(last, first + 4)] });
    return {
      text: said(culprit.sentence, this.t),
      tone: 'finding',
      action: { label: this.t('Show these steps'), run }
    };
  }

  private _foundNote(answer: ITimelineAnswer): INote {
    const clear = (): void => this.choose({ find: '' });
    return this._search.note(answer, this.options.find, by => void this._turn(by), clear, this.t);
  }

  /** Go to the next span that is found, or to the one before. */
  private _turn(by: 1 | -1): IMoved | null {
    const answer = this._answer;
    if (!answer || answer.found.count === 0) {
      return null;
    }
    this._search.turn(by, answer);
    const shown = this._search.shown(answer);
    this.env.refresh(true);
    if (!shown) {
      // It is gone to when it has come.
      this._wanted = true;
      return null;
    }
    return this._goToFound(answer, shown);
  }

  private _goToFound(answer: ITimelineAnswer, shown: IFoundSpan): IMoved {
    const lane = answer.lanes.findIndex(({ rank }) => rank === shown.rank);
    const mark = markOf({ lane, begin: shown.begin, end: shown.end });
    this.env.goTo(mark);
    const said = this._search.words(answer, shown, this.t);
    this.env.say(said);
    return { said, mark };
  }

  private _legend({ pieces }: ITimelineAnswer, isDark: boolean): ILegend {
    const { hidden } = this.options;
    const there = new Set(pieces.map(({ kind }) => kind));
    const entries = KINDS.filter(kind => there.has(kind) || hidden.includes(kind)).map(kind => ({
      id: kind,
      name: kindWords(kind, this.t),
      color: kindColor(kind, isDark),
      isHidden: hidden.includes(kind)
    }));
    if (this._hasMemory) {
      const [name, color] = [kindWords(MEMORY, this.t), kindColor(MEMORY, isDark)];
      entries.push({ id: MEMORY, name, color, isHidden: hidden.includes(MEMORY) });
    }
    return { title: this.t('kind'), entries, hidden, hide: names => this.choose({ hidden: names }) };
  }

  private _links({ lanes, links }: ITimelineAnswer): Row[] {
    const laneOf = new Map(lanes.map(({ rank }, at) => [rank, at]));
    return links.flatMap(({ rank, at, other, otherAt }) => {
      const [y, y2] = [laneOf.get(rank), laneOf.get(other)];
      return y === undefined || y2 === undefined ? [] : [{ x: at, y, x2: otherAt, y2 }];
    });
  }

  private _rows(piece: IPiece, isDark: boolean): Row[] {
    const { lane, depth, begin, end, kind } = piece;
    const text = this._words(piece, this._answer?.lanes[lane]);
    if (isMemory(piece)) {
      return memoryRows(piece, this._answer?.memory?.scale ?? 1, isDark, text);
    }
    const y = depth === 1 ? lane + 0.05 : lane - HALF;
    return [{ x: begin, x2: end, y, y2: lane + HALF, color: kindColor(kind, isDark), text }];
  }

  /** The rank of a stretch of memory, whose lanes come after those of spans. */
  private _rankOf({ lane }: IPiece): number {
    return this._answer?.memory?.ranks[lane - this._answer.lanes.length] ?? NaN;
  }

  private _words(piece: IPiece, lane: ITimelineLane | undefined): string {
    if (isMemory(piece)) {
      return memoryWords(piece, this._rankOf(piece), this.t);
    }
    const { kind, name, begin, end, step } = piece;
    const what = name === '' ? kindWords(kind, this.t) : name;
    const where = lane ? laneWords(lane, this.t) : '';
    const took = timeWords(end - begin);
    return step < 0
      ? this.t('%1: %2, %3', where, what, took)
      : this.t('%1, step %2: %3, %4', where, formatInteger(step), what, took);
  }

  private _at(mark: IMark): IPiece | undefined {
    const lane = mark.y === null ? NaN : (mark.y[0] + mark.y[1]) / 2;
    return this._pieces
      .filter(each => each.lane === Math.round(lane) && each.begin === mark.x[0] && each.end === mark.x[1])
      .at(-1);
  }

  private get _isMap(): boolean {
    return this.options.kind === 'map';
  }

  private readonly _slow = new SlowMap(this.t);
  private _answer: ITimelineAnswer | null = null;
  /** Whether there is memory, hidden or not. */
  private _hasMemory = false;
  private _pieces: readonly IPiece[] = [];
  private _cursor: IPiece | null = null;
  private readonly _search = new Search();
  /** Whether a span that was found is gone to as soon as it is there. */
  private _wanted = false;
  private readonly _selection = new Selection(
    this.t,
    text => this.actions.copy(text),
    () => this.boxed(null)
  );
  private readonly _overview = new Overview(this.t, steps => this.choose({ steps }));
  /** The span whose dependencies are drawn. */
  private _chosen: number | null = null;
  /** What was asked last: another answer may have other times, to which the zoom does not fit. */
  private _key = '';
  /** Of what it is known who makes the others wait, and of what that is being found out. */
  private _judged = '';
  private _judging = '';
}

function markOf({ lane, begin, end }: Pick<IPiece, 'begin' | 'end' | 'lane'>): IMark {
  return { facet: null, x: [begin, end], y: [lane - 0.5, lane + 0.5] };
}

export const view: IViewDefinition<TimelineOptions> = {
  create: (source, env) => new TimelineView(source, env)
};
