import { COLORS, formatInteger, type Row, timeWords } from '../../../charts';
import type { TimelineOptions } from '../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../store/source';
import type { IContent, IMark, IMoved, INote, Loaded } from '../../../views/shared/content';
import { type Control, selectControl } from '../../../views/shared/control';
import { goControl } from '../../../views/shared/controls';
import { chip, rangesField, type ITip } from '../../../views/shared/table';
import { type Bar, LanePicture } from '../../../views/kits/lanes/lane-picture';
import { loadSentences, said } from '../../../views/shared/said';
import { type IPictured, ViewModel, type IViewEnvironment } from '../../../views/shared/view-model';
import { KINDS, kindColor } from '../../../views/shared/span-kinds';
import type { IViewDefinition } from '../../../views/shared/definition';
import { TIMELINE, type IFoundSpan, type IPiece, type ITimelineAnswer } from '../client/timeline-api';
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
  memoryBars,
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
    const { env, options, t } = this;
    const hidden = new Set(options.hidden);
    const spans = answer.pieces.filter(({ kind }) => !hidden.has(kind));
    const names = [
      ...answer.lanes.map(({ rank }) => formatInteger(rank)),
      ...(answer.memory?.ranks ?? []).map(rank => t('memory %1', formatInteger(rank)))
    ];
    return this._picture.draw({
      template: 'timeline',
      pieces: [...spans, ...(answer.memory?.pieces ?? [])],
      x: answer.whole,
      rows: laneCount(answer),
      names: Object.fromEntries(names.entries()),
      ticks: namedLanes(answer),
      height: lanesHeight(answer),
      texts: {
        xTitle: t('since step %1 began', formatInteger(answer.chosen[0])),
        yTitle: t('rank'),
        colorTitle: t('kind')
      },
      kinds: this._kinds(answer),
      hidden: options.hidden,
      hide: next => this.choose({ hidden: next }),
      colorOf: kindColor,
      bars: (piece, dark) => this._bars(piece, dark),
      words: piece => this._words(piece),
      tip: piece => this._tip(piece),
      more: dark => {
        const ink = COLORS.ink[dark ? 'dark' : 'light'];
        return {
          params: { stepColor: ink.muted, linkColor: ink.strong, foundColor: ink.strong },
          datasets: {
            steps: stepRows(answer, env.width),
            clocks: answer.lanes.flatMap((lane, at) => clockRow(answer, lane, at)),
            links: [...this._links(answer), ...pathRows(answer)],
            labels: labelRows(answer, hidden, env.width, t),
            found: foundRows(answer, spans, options.find)
          }
        };
      }
    });
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

  protected override get drawn(): IPictured {
    return this._isMap ? this._slow : this._picture;
  }

  override move(key: string): IMoved | null {
    return !this._isMap && key.toLowerCase() === 'n' && this.options.find !== ''
      ? this._turn(key === 'n' ? 1 : -1)
      : super.move(key);
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
    const row = this._picture.at(mark)?.row ?? -1;
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
    const { _chosen: chosen, _picture: picture } = this;
    const piece = chosen === null ? undefined : picture.pieces.find(each => each.row === chosen);
    return piece ? picture.markOf(piece) : null;
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
    const mark = this._picture.markOf({ ...shown, lane });
    this.env.goTo(mark);
    const said = this._search.words(answer, shown, this.t);
    this.env.say(said);
    return { said, mark };
  }

  private _kinds({ pieces }: ITimelineAnswer): { id: string; name: string }[] {
    const there = new Set([...pieces.map(({ kind }) => kind), ...this.options.hidden]);
    const kinds = [...KINDS.filter(kind => there.has(kind)), ...(this._hasMemory ? [MEMORY] : [])];
    return kinds.map(id => ({ id, name: kindWords(id, this.t) }));
  }

  private _links({ lanes, links }: ITimelineAnswer): Row[] {
    const laneOf = new Map(lanes.map(({ rank }, at) => [rank, at]));
    return links.flatMap(({ rank, at, other, otherAt }) => {
      const [y, y2] = [laneOf.get(rank), laneOf.get(other)];
      return y === undefined || y2 === undefined ? [] : [{ x: at, y, x2: otherAt, y2 }];
    });
  }

  private _bars(piece: IPiece, isDark: boolean): readonly Bar[] {
    const { lane, depth, kind } = piece;
    if (isMemory(piece)) {
      return memoryBars(piece, this._answer?.memory?.scale ?? 1, isDark);
    }
    const y = depth === 1 ? lane + 0.05 : lane - HALF;
    return [{ y, y2: lane + HALF, color: kindColor(kind, isDark) }];
  }

  private _tip(piece: IPiece): ITip | null {
    const [{ isDark }, lane] = [this.env, this._answer?.lanes[piece.lane]];
    return isMemory(piece)
      ? memoryTip(piece, this._rankOf(piece), isDark, this.t)
      : lane
        ? pieceTip(piece, lane, isDark, this.t)
        : null;
  }

  /** The rank of a stretch of memory, whose lanes come after those of spans. */
  private _rankOf({ lane }: IPiece): number {
    return this._answer?.memory?.ranks[lane - this._answer.lanes.length] ?? NaN;
  }

  private _words(piece: IPiece): string {
    if (isMemory(piece)) {
      return memoryWords(piece, this._rankOf(piece), this.t);
    }
    const { kind, name, begin, end, step } = piece;
    const what = name === '' ? kindWords(kind, this.t) : name;
    const lane = this._answer?.lanes[piece.lane];
    const where = lane ? laneWords(lane, this.t) : '';
    const took = timeWords(end - begin);
    return step < 0
      ? this.t('%1: %2, %3', where, what, took)
      : this.t('%1, step %2: %3, %4', where, formatInteger(step), what, took);
  }

  private get _isMap(): boolean {
    return this.options.kind === 'map';
  }

  private readonly _picture = new LanePicture<IPiece>(this.env);
  private readonly _slow = new SlowMap(this.t);
  private _answer: ITimelineAnswer | null = null;
  /** Whether there is memory, hidden or not. */
  private _hasMemory = false;
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

export const view: IViewDefinition<TimelineOptions> = {
  create: (source, env) => new TimelineView(source, env)
};
