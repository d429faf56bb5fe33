import type { IMomentGroups, MomentColumn, MomentKey } from '../../store/row-moments';
import { comparedTitle, betweenWords, compareLines, missingWords, runWords } from '../kits/lines/compare';
import { allHidden, hiddenWords, shownLines } from '../kits/lines/legend';
import { finiteRange, type ILine } from '../kits/lines/line';
import { LinePicture, type ILinesRead } from '../kits/lines/line-picture';
import { scaleWords } from '../kits/lines/line-recipe';
import { pointsOf } from '../kits/lines/shape-lines';
import { axisTexts, clockOf, placeWords, StepAxis, type RunClock } from '../kits/lines/step-axis';
import type { IContent, IMark, INote, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { goControl, outliersControl } from '../shared/controls';
import { capital } from '../shared/describe';
import { scaleOf } from '../shared/scale';
import type { IPictured } from '../shared/view-model';
import {
  badSteps,
  badStretches,
  nonFiniteWords,
  omittedWords,
  optionWords,
  trustWords,
  type IStretch
} from './captions';
import { linesOf, startsOf } from './line';
import { MomentPane } from './pane';
import type { IMomentQuestion, IMomentRun, MomentReader } from './reader';
import { axisWords, byWords, keyWords, titleWords, toldWords } from './words';

/** Steps with their samples, ascending. */
type Logged = Pick<IMomentGroups, 'samples' | 'step' | 'stepsTotal'>;

/** Reads lines of a run; of smoothed ones the numbers themselves as well, as faint lines. */
type Read = (question: IMomentQuestion, signal?: AbortSignal) => Promise<readonly ILine[]>;

/** Another run with values that are not finite. */
interface IBadRun {
  readonly name: string;
  readonly groups: IMomentGroups;
  readonly stretches: readonly IStretch[];
}

/** Whole lines, and what is drawn around them. */
interface ILines extends Pick<ILinesRead, 'axis' | 'bad' | 'lines' | 'readSteps'> {
  readonly base: IMomentGroups;
  /** Points of a comparison that lie between two of this run's. */
  readonly between: number;
  /** Other runs that have nothing to compare. */
  readonly without: readonly IMomentRun[];
  /** Other runs in which values are not finite. */
  readonly badIn: readonly IBadRun[];
}

/** Most points of a line that is compared: then every one is needed. */
const COMPARED = 20_000;

/** Groups of tensors over steps or samples, one line each, of this run and of those it is compared with. */
export class LinesPane extends MomentPane {
  override get by(): readonly MomentColumn[] {
    return this.options.kind === 'tensors' ? ['name'] : super.by;
  }

  /** Samples are known of all steps or of none. */
  protected override get drawsEarly(): boolean {
    return this.options.x === 'step' && this.options.align === 'step';
  }

  override get drawsWhileDragged(): boolean {
    return true;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, t, _picture: picture } = this;
    if (!picture.isHeld) {
      // As many lines, and points of them, as are drawn along with those of other runs.
      const points = this._how
        ? COMPARED
        : pointsOf(this.env.width, options.series * (1 + this.otherRuns.length));
      const question = { ...this.question(this.by), series: options.series, points };
      this._logged = this.total ?? stepsOf(await reader.groups(question, signal));
      const placed = await this.axisOf(this._logged, signal);
      if (placed === null) {
        return this.unknownPlaces();
      }
      const versions = [reader, ...this.otherRuns.map(each => each.reader)].map(each => each?.version);
      // Lines that were drawn before the total is known are drawn again with it: their words say more then.
      const early = this.total === null;
      const key = JSON.stringify([question, options, versions, this.env.isDark, this.index?.warnings, early]);
      // What is drawn already stays the same object, so that it is not painted again.
      if (key !== this._key) {
        const read = await this._readLines(reader, question, placed, signal);
        if (read === null) {
          return { state: this.nothing() };
        }
        const lines = shownLines(read.lines, options.hidden);
        if (lines.length === 0) {
          return { state: allHidden(this._legend.hide, t) };
        }
        this._key = key;
        this._draw(read);
        this._words = this._wordsOf(read, lines);
      }
      this._notes = await this.notes(reader, signal);
    }
    await picture.refine();
    const caption = [...this._words.caption, ...picture.outlierWords()];
    const notes = [...this._notes, ...picture.notes];
    return { content: { ...picture.drawing, ...this._words, caption, notes } };
  }

  override controls(): Control[] {
    return [
      outliersControl(this.options.ignore_outliers, change => this.choose(change), this.t),
      goControl(step => this.env.goTo(this._picture.goTo(step)), this.t)
    ];
  }

  protected override get drawn(): IPictured {
    return this._picture;
  }

  override insight(): IMark | null {
    return this._picture.insight();
  }

  /** How runs are compared; null where lines are drawn as they are. */
  private get _how(): 'difference' | 'ratio' | null {
    const { compare } = this.options;
    return compare === 'overlay' || this.otherRuns.length === 0 ? null : compare;
  }

  /** Read lines of this run and of those it is compared with; null where there are none. */
  private async _readLines(
    reader: MomentReader,
    question: IMomentQuestion,
    { axis, clock }: { readonly axis: StepAxis; readonly clock: RunClock },
    signal: AbortSignal
  ): Promise<ILines | null> {
    const { options, otherRuns: others, _how: how } = this;
    const own = this._linesIn(reader, 0, this._logged, clock);
    const rest = await Promise.all(
      others.map(async (other, at) => {
        if (other.reader === null || other.source === null) {
          return null;
        }
        const total = await other.reader.groups(this.everything, signal);
        const theirs = await clockOf(other.source, options.align, signal);
        return theirs && this._linesIn(other.reader, at + 1, total, theirs);
      })
    );
    const base = await reader.groups(question, signal);
    const mine = await own(question, signal);
    const theirs = await Promise.all(rest.map(async read => (read ? read(question, signal) : [])));
    const bad = await Promise.all(others.map(each => this._badIn(each, question, signal)));
    const badIn = bad.filter(each => each !== null);
    const compared = how && compareLines(mine, theirs.flat(), how);
    const lines = compared?.lines ?? [...mine, ...theirs.flat()];
    return lines.length === 0
      ? null
      : {
          base,
          lines,
          between: compared?.between ?? 0,
          without: others.filter((_, at) => theirs[at]?.length === 0),
          bad: [
            ...badStretches(base, this._logged.step, step => axis.xOf(step)),
            ...badIn.flatMap(({ stretches }) => stretches)
          ],
          badIn,
          axis,
          ...(!compared && {
            readSteps: async (run, steps) => (await [own, ...rest][run]?.({ ...question, steps })) ?? []
          })
        };
  }

  /** What reads the lines of a run. */
  private _linesIn(from: MomentReader, run: number, total: Logged, clock: RunClock): Read {
    const { by, options, otherRuns: others, source, t } = this;
    const { id = '', name: runName = '' } = [source, ...others][run] ?? {};
    const starts = startsOf(total);
    return async ({ points, ...question }, signal) => {
      const raw = { ...question, ...(points === undefined ? {} : { points }) };
      const groups = await from.groups(raw, signal);
      const isAlone = others.length > 0 && groups.keys.length === 1;
      const words = (key: MomentKey): string => keyWords(key, by, t);
      const wish = {
        ...{ options, by, run, starts, clock },
        name: others.length > 0 ? (key: MomentKey) => `${runName} · ${words(key)}` : words,
        label: isAlone ? () => runName : words,
        ...(isAlone && { entry: id })
      };
      const lines = linesOf(groups, wish);
      return options.smoothing < 2
        ? lines
        : [
            ...linesOf(await from.groups({ ...raw, smoothing: 0 }, signal), { ...wish, isFaint: true }),
            ...lines
          ];
    };
  }

  /** Where another run has values that are not finite, by its own steps; null where it has none. */
  private async _badIn(
    { name, reader }: IMomentRun,
    question: IMomentQuestion,
    signal: AbortSignal
  ): Promise<IBadRun | null> {
    const groups = await reader?.groups(question, signal);
    if (!reader || !groups || badSteps(groups).size === 0) {
      return null;
    }
    const { samples, step } = await reader.groups(this.everything, signal);
    const axis = new StepAxis(step, this.options.x === 'samples' ? samples : null);
    return { name, groups, stretches: badStretches(groups, step, each => axis.xOf(each)) };
  }

  private _draw(read: ILines): void {
    const { options, t } = this;
    this._picture.take({
      ...read,
      legend: this._legend,
      transform: options.transform,
      ignoresOutliers: options.ignore_outliers,
      choose: change => this.choose(change),
      quantity: axisWords(options, options.runs, t),
      smoothing: options.smoothing,
      texts: {
        ...axisTexts(options.align, options.x, this.env, t),
        yTitle: axisWords(options, options.runs, t),
        colorTitle: capital(byWords(this.by, t))
      },
      placeWords: placeWords(options.align, options.x, t)
    });
  }

  /** @param lines - Those that are not hidden. */
  private _wordsOf(read: ILines, lines: readonly ILine[]): Words {
    const { by, index, options, otherRuns: others, t } = this;
    const { name } = this.source;
    const steps = lines.flatMap(({ step }) => [step[0] ?? NaN, step[step.length - 1] ?? NaN]);
    const compared = others.filter(each => !read.without.includes(each));
    const unit = by.join() === 'name' ? t('tensors') : t('series');
    const quantity = axisWords(
      options,
      others.map(({ id }) => id),
      t
    );
    return {
      title: comparedTitle(titleWords(options, by, steps, t), options, others, t),
      caption: [
        ...omittedWords(read.base, unit, t),
        ...runWords(options, name, others, compared, t),
        ...betweenWords(read.between, t),
        ...missingWords(read.without, t),
        ...hiddenWords(read.lines, options.hidden, t),
        ...scaleWords(scaleOf(options.transform, finiteRange(lines)?.[0] ?? 0), t),
        ...optionWords(options, index, t),
        ...nonFiniteWords(read.base, t),
        ...read.badIn.flatMap(other => nonFiniteWords(other.groups, t, true, other.name)),
        ...(compared.length > 0 && options.compare !== 'overlay'
          ? []
          : trustWords(read.base, { ...options, by: [...by] }, t))
      ],
      summary: toldWords(
        capital(quantity),
        lines.filter(({ isFaint }) => !isFaint),
        t
      )
    };
  }

  private get _legend(): ILinesRead['legend'] {
    return { hidden: this.options.hidden, hide: hidden => this.choose({ hidden }) };
  }

  private _logged: Logged = NOTHING;
  private _words: Words = { title: '', caption: [], summary: '' };
  private _key = '';
  private _notes: readonly INote[] = [];
  private readonly _picture = new LinePicture(this.env, this.t);
}

type Words = Pick<IContent, 'title' | 'caption' | 'summary'>;

/** The steps of lines, where those of everything are not known yet. */
function stepsOf({ step, stepsTotal }: IMomentGroups): Logged {
  const steps = step
    .slice()
    .sort()
    .filter((each, at, all) => each !== all[at - 1]);
  return { step: steps, samples: new Float64Array(steps.length).fill(-1), stepsTotal };
}

const NOTHING = { step: new Float64Array(), samples: new Float64Array(), stepsTotal: 0 };
