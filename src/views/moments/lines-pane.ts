import { formatInteger, type IPlotFrame, type IPlace, type IRecipe } from '../../charts';
import type { IMomentGroups, MomentColumn } from '../../store/moment-source';
import type { IPointed } from '../../store/run-link';
import type { IContent, IMark, IMoved, INote, Loaded } from '../shared/content';
import type { ILinkedMarks, IStepAxis } from '../shared/links';
import type { ITip } from '../shared/tip';
import { heightOf } from '../shared/trace';
import { StepAxis } from './axes';
import { dashOf, lineColors } from './colors';
import { Detail } from './detail';
import { placeNear } from '../shared/places';
import type { IMomentLine } from './line';
import { lineRecipe } from './line-recipe';
import { moveAmong, tipLines, valueWords, type IPoint } from './line-tips';
import { lineCaption, lineSummary, lineTitle } from './line-words';
import { MomentPane } from './pane';
import { linesQuestion, namedLines, readLines, type ILines } from './read-lines';
import type { MomentReader } from './reader';
import { axisWords, byWords, capital } from './words';

/** A line this near to the pointer is the one that is pointed at, pixels. */
const NEAR_PIXELS = 14;
/** Most lines of one layer that are marked when another view points at it. */
const MOST_TRACES = 8;
const HEIGHT = 300;

/** Groups of tensors over steps or samples, one line each, of this run and of those it is compared with. */
export class LinesPane extends MomentPane {
  override pointedBy(mark: IMark): IPointed {
    return { step: this._axis.stepNear(mark.x[0]), layer: this._near?.layer ?? null };
  }

  override marksOf({ layer, step }: IPointed): ILinkedMarks {
    const x = step === null ? null : this._axis.xOf(step);
    const { y, scale } = this._read ?? UNREAD;
    const found = layer === null ? [] : this._lines.filter(line => line.layer === layer);
    return {
      marks: x === null ? [] : [{ facet: null, x: [x, x], y: null }],
      traces: found.slice(0, MOST_TRACES).map(line => ({
        color: this._colorOf(line),
        points: Array.from(line.x, (at, place) => [at, heightOf(line.value[place] ?? NaN, y, scale)] as const)
      }))
    };
  }

  override stepAxis(): IStepAxis {
    return {
      stepsIn: span => this._axis.stepsIn(span),
      spanOf: ([first, last]) => [this._axis.xOf(first), this._axis.xOf(last)]
    };
  }

  override get by(): readonly MomentColumn[] {
    return this.options.kind === 'tensors' ? ['name'] : super.by;
  }

  /** Samples are known of all steps or of none. */
  protected override get drawsEarly(): boolean {
    return this.options.x === 'step';
  }

  override get drawsWhileDragged(): boolean {
    return true;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, t } = this;
    // Under a hand that drags nothing may jump: what came meanwhile is drawn when it lets go.
    const held = this.env.zoom?.isDragging === true && this._read !== null;
    if (!held) {
      const question = linesQuestion(options, this.question(this.by), this.otherRuns);
      this._logged = this.total ?? stepsOf(await reader.groups(question, signal));
      this._axis = new StepAxis(this._logged, options.x);
      if (!this._axis.isKnown) {
        return this.unknownSamples();
      }
      const versions = [reader, ...this.otherRuns.map(each => each.reader)].map(each => each?.version);
      // Lines that were drawn before the total is known are drawn again with it: their words say more then.
      const early = this.total === null;
      const key = JSON.stringify([question, options, versions, this.env.isDark, this.index?.warnings, early]);
      // What is drawn already stays the same object, so that it is not painted again.
      if (key !== this._key || this._read === null) {
        const read = await readLines({ ...this._query(reader), question }, signal, t);
        if (read === null) {
          return { state: this.nothing() };
        }
        this._key = key;
        this._read = read;
        this._colors = lineColors(read.lines, this.env.isDark);
        const { name } = this.source;
        const subject = { options, by: this.by, read, name, others: this.otherRuns, index: this.index };
        this._words = {
          title: lineTitle(subject, t),
          caption: lineCaption(subject, t),
          summary: lineSummary(subject, t)
        };
      }
      this._notes = await this.notes(reader, signal);
    }
    const lines = await this._detailed(reader, signal, held);
    return { content: this._compose(lines) };
  }

  override probe(place: IPlace): IMark | null {
    const step = this._axis.stepNear(place.x);
    const x = this._axis.xOf(step);
    const { y, scale } = this._read ?? UNREAD;
    const part = (place.y - y[0]) / (y[1] - y[0]);
    let [best, least]: [IMomentLine | null, number] = [null, NEAR_PIXELS / place.frame.height];
    for (const line of this._lines) {
      const value = line.value[placeNear(line.x, x)] ?? NaN;
      const away = Math.abs(heightOf(value, y, scale) - part);
      if (away <= least) {
        [best, least] = [line, away];
      }
    }
    this._near = best;
    const nearest = best ?? this._lines[0];
    const shown = nearest?.x[placeNear(nearest.x, x)] ?? x;
    return { facet: null, x: [shown, shown], y: null };
  }

  override tipOf(mark: IMark): ITip | null {
    const lines = tipLines(this._lines, mark.x[0], this._near, line => this._colorOf(line), this.t);
    const step = formatInteger(this._axis.stepNear(mark.x[0]));
    const heading =
      this.options.x === 'samples'
        ? this.t('step %1, %2 samples', step, formatInteger(mark.x[0]))
        : this.t('step %1', step);
    return lines.length === 0 ? null : { heading, lines };
  }

  override move(key: string): IMoved | null {
    const at = moveAmong(key, this._at, this._lines);
    const line = at && this._lines[at.line];
    if (at === null || !line) {
      return null;
    }
    this._at = at;
    this._near = line;
    const x = line.x[at.at] ?? 0;
    this.env.zoom?.reveal(x, 0);
    const value = valueWords(line, at.at, this.t);
    const quantity = axisWords(this.options, this.options.runs, this.t);
    const said = this.t(
      'step %1, %2: %3 %4',
      formatInteger(line.step[at.at] ?? 0),
      line.name,
      quantity,
      value
    );
    const mark: IMark = { facet: null, x: [x, x], y: null };
    return key === 'copy' ? { said, mark, copy: value } : { said, mark };
  }

  private _query(reader: MomentReader): Omit<Parameters<typeof readLines>[0], 'question'> {
    return {
      options: this.options,
      by: this.by,
      name: this.source.name,
      reader,
      others: this.otherRuns,
      everything: this.everything,
      axis: this._axis,
      steps: this._logged.step
    };
  }

  /** The lines with what is shown now in full detail, where the whole leaves steps out. */
  private async _detailed(
    reader: MomentReader,
    signal: AbortSignal,
    held: boolean
  ): Promise<readonly IMomentLine[]> {
    const [read, zoom] = [this._read, this.env.zoom];
    if (!read?.leftOut || !zoom?.isZoomed) {
      return read?.lines ?? [];
    }
    const key = `${reader.version} ${JSON.stringify(read.question)}`;
    const { x0, x1 } = zoom.domain;
    const shown = this._axis.stepsIn([x0, x1]);
    const width = x1 - x0;
    const steps = this._axis.stepsIn([x0 - width, x1 + width]);
    if (shown && steps && !this._detail.covers(key, shown)) {
      const query = this._query(reader);
      const readers = [reader, ...this.otherRuns.map(each => each.reader)];
      const asked = Promise.all(
        readers.map(async (each, run) =>
          each ? namedLines(query, await each.groups({ ...read.question, steps }, signal), run, this.t) : []
        )
      ).then(lines => this._detail.take(key, steps, lines.flat()));
      if (!held) {
        await asked;
      } else {
        // What is shown coarsely meanwhile is drawn again when the answer is there.
        asked.then(
          () => this.env.refresh(false),
          () => undefined
        );
      }
    }
    return this._detail.refine(key, read.lines);
  }

  private _compose(lines: readonly IMomentLine[]): IContent {
    const { options, by, t, _read: read } = this;
    if (read === null) {
      throw new Error('Expected lines that were read and found none.');
    }
    this._lines = lines;
    const wish = {
      lines,
      colors: this._colors,
      bad: read.bad,
      x: read.x,
      y: read.y,
      texts: {
        xTitle: options.x === 'step' ? t('step') : t('samples'),
        yTitle: axisWords(options, options.runs, t),
        colorTitle: capital(byWords(by, t)),
        yScale: read.scale
      }
    };
    const { x0, x1 } = this.env.zoom?.isZoomed ? this.env.zoom.domain : { x0: read.x[0], x1: read.x[1] };
    const { painter } = this.env;
    const dashes = lines.map(({ run }) => dashOf(run));
    const recipeIn = ({ width, height }: Pick<IPlotFrame, 'width' | 'height'>): IRecipe => {
      const { y, scale, x: full } = read;
      const look = { lines, colors: this._colors, dashes, y, scale, full, width, height };
      const pictures = painter?.paint({ ...look, shown: [x0, x1] }) ?? null;
      return { ...lineRecipe(wish, pictures), painted: painter?.painted ?? 0 };
    };
    return {
      recipe: recipeIn(this.env.frame ?? { width: Math.max(200, this.env.width - 200), height: HEIGHT }),
      refit: frame => (painter?.isStretchedIn(frame) ? recipeIn(frame) : null),
      printed: () => lineRecipe(wish, null),
      extent: { x: read.x, y: read.y },
      ...this._words,
      notes: this._notes
    };
  }

  private _colorOf(line: IMomentLine): string {
    return this._colors[this._lines.indexOf(line)] ?? '#000';
  }

  private _logged: ILogged = NOTHING;
  private _axis = new StepAxis(NOTHING, 'step');
  private _read: ILines | null = null;
  private _lines: readonly IMomentLine[] = [];
  private _colors: readonly string[] = [];
  private _words: Pick<IContent, 'title' | 'caption' | 'summary'> = { title: '', caption: [], summary: '' };
  private _key = '';
  private _notes: readonly INote[] = [];
  private _near: IMomentLine | null = null;
  private _at: IPoint | null = null;
  private readonly _detail = new Detail();
}

/** Steps with their samples, ascending. */
type ILogged = Pick<IMomentGroups, 'step' | 'samples'>;

/** The steps of lines, where those of everything are not known yet. */
function stepsOf({ step }: IMomentGroups): ILogged {
  const steps = step
    .slice()
    .sort()
    .filter((each, at, all) => each !== all[at - 1]);
  return { step: steps, samples: new Float64Array(steps.length).fill(-1) };
}

const UNREAD = { y: [0, 1], scale: 'linear' } as const;
const NOTHING = { step: new Float64Array(), samples: new Float64Array() };
