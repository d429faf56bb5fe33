import type { IMomentGroups, MomentColumn } from '../../store/row-moments';
import type { IContent, IMark, INote, Loaded } from '../shared/content';
import type { Control } from '../shared/control';
import { goControl, outliersControl } from '../shared/controls';
import { allHidden, shownLines } from '../kits/lines/legend';
import { LinePicture, type ILinesRead } from '../kits/lines/line-picture';
import { axisTexts, placeWords } from '../kits/lines/step-axis';
import type { IPictured } from '../shared/view-model';
import { lineCaption, lineSummary, lineTitle } from './line-words';
import { MomentPane } from './pane';
import { linesQuestion, readLines, type ILines, type ILogged } from './read-lines';
import type { MomentReader } from './reader';
import { axisWords, byWords } from './words';
import { capital } from '../shared/describe';

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
      const question = linesQuestion(options, this.question(this.by), this.otherRuns, this.env.width);
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
        const { by, otherRuns: others, everything } = this;
        const { id, name } = this.source;
        const read = await readLines(
          { options, by, id, name, reader, others, everything, logged: this._logged, question, ...placed },
          signal,
          t
        );
        if (read === null) {
          return { state: this.nothing() };
        }
        const lines = shownLines(read.lines, options.hidden);
        if (lines.length === 0) {
          return { state: allHidden(this._legend.hide, t) };
        }
        this._key = key;
        this._draw(read);
        const subject = { options, lines, by, read, name, others, index: this.index };
        this._words = {
          title: lineTitle(subject, t),
          caption: lineCaption(subject, t),
          summary: lineSummary(subject, t)
        };
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

  private get _legend(): ILinesRead['legend'] {
    return { hidden: this.options.hidden, hide: hidden => this.choose({ hidden }) };
  }

  private _logged: ILogged = NOTHING;
  private _words: Pick<IContent, 'title' | 'caption' | 'summary'> = { title: '', caption: [], summary: '' };
  private _key = '';
  private _notes: readonly INote[] = [];
  private readonly _picture = new LinePicture(this.env, this.t);
}

/** The steps of lines, where those of everything are not known yet. */
function stepsOf({ step, stepsTotal }: IMomentGroups): ILogged {
  const steps = step
    .slice()
    .sort()
    .filter((each, at, all) => each !== all[at - 1]);
  return { step: steps, samples: new Float64Array(steps.length).fill(-1), stepsTotal };
}

const NOTHING = { step: new Float64Array(), samples: new Float64Array(), stepsTotal: 0 };
