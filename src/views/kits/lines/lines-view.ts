import { formatInteger } from '../../../charts';
import type { ScalarsOptions } from '../../../protocol/views.generated';
import type { IRunSource } from '../../../store/source';
import type { IContent, IMark, Loaded } from '../../shared/content';
import type { Control } from '../../shared/control';
import { goControl, outliersControl, smoothedChip, smoothingControl } from '../../shared/controls';
import { omissionWords } from '../../shared/describe';
import { scaleOf } from '../../shared/scale';
import { emptyState, type IState } from '../../shared/states';
import type { IPictured, IViewEnvironment } from '../../shared/view-model';
import { KeepingView } from '../keeping-view';
import {
  comparedTitle,
  runsControls,
  type RunsOptions,
  betweenWords,
  missingWords,
  runWords,
  RunList
} from './compare';
import { allHidden, hiddenWords, shownLines } from './legend';
import { finiteRange, type ILine } from './line';
import { LinePicture, type ILinesRead } from './line-picture';
import { badOf, scaleWords } from './line-recipe';
import { OtherRuns, type IOtherRun } from './other-runs';
import { pointsOf, readRunLines, type ILineAsk, type IRunLines } from './shape-lines';
import { axisTexts, clockOf, placeWords, unknownClock, type RunClock, StepAxis } from './step-axis';

export type LineOptions = Pick<
  Required<ScalarsOptions>,
  | 'align'
  | 'baseline'
  | 'compare'
  | 'hidden'
  | 'ignore_outliers'
  | 'runs'
  | 'smoothing'
  | 'steps'
  | 'transform'
> &
  Partial<Pick<ScalarsOptions, 'aliases'>>;

export const SMOOTHINGS = [0, 5, 20, 50, 100, 200] as const;

export interface ILineRun {
  readonly source: IRunSource;
  readonly run: number;
  readonly clock: RunClock;
  /** What the legend and tips call a line of it, which is one of so many. */
  named(words: string, of: number): RunNames;
}

type RunNames = Pick<ILine, 'entry' | 'group' | 'label' | 'name'>;

/** What axes and legend are called. */
interface ILineTexts extends Pick<ILinesRead, 'headers' | 'quantity'> {
  readonly yTitle: string;
  readonly colorTitle: string;
  /** How runs are aligned; as the options have it when absent. */
  readonly align?: LineOptions['align'];
  /** What the horizontal axis is; steps when absent. */
  readonly over?: 'step' | 'time';
}

/** Lines of a run and of those that it is compared with. */
export interface IComparedLines extends IRunLines {
  /** Those that are not hidden: what words are about. */
  readonly shown: readonly ILine[];
  /** All runs, by their numbers. */
  readonly runs: readonly IOtherRun[];
  /** Those that are drawn beside this one, or compared with the baseline. */
  readonly others: readonly IOtherRun[];
  /** Name of the baseline; undefined where it is this run. */
  readonly base: string | undefined;
  readonly axis: StepAxis;
}

/**
 * A view that draws lines of its run, and of others, over steps: reading what is drawn once, and again when
 * there is more.
 */
export abstract class LinesView<O extends LineOptions> extends KeepingView<O, LinesLoaded> {
  /** @param streams - Streams that are drawn. */
  constructor(
    source: IRunSource,
    env: IViewEnvironment<O>,
    protected readonly streams: readonly string[]
  ) {
    super(source, env);
    this._others = new OtherRuns(env.runs, streams[0] ?? '', () => {
      this.forget();
      env.refresh(false);
    });
  }

  /**
   * Read what is drawn, and hand lines to the picture. Without a recipe, what is drawn are the picture's
   * lines.
   */
  protected abstract read(signal: AbortSignal): Promise<LinesLoaded>;

  override get drawsWhileDragged(): boolean {
    return true;
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  override dispose(): void {
    this._others.dispose();
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { options, env, picture } = this;
    const asked = [options, env.within(options.steps), env.isDark];
    const loaded =
      (picture.isHeld ? this.kept : null) ??
      (await this.once(
        asked,
        () => this.read(signal),
        found => 'content' in found
      ));
    if ('state' in loaded) {
      return loaded;
    }
    const { content } = loaded;
    if ('recipe' in content) {
      return { content };
    }
    await picture.refine();
    const caption = [...content.caption, ...picture.outlierWords()];
    return { content: { ...picture.drawing, notes: picture.notes, ...content, caption } };
  }

  override insight(): IMark | null {
    return this.drawn.insight();
  }

  protected readonly picture = new LinePicture(this.env, this.t);

  protected override get drawn(): ILinesDrawn {
    return this.picture;
  }

  /** Runs to compare with, which are asked for once a toolbar offers them. */
  private get _runs(): RunList {
    this._runList ??= new RunList(this.source, this.env.runs, () => this.env.refresh(false));
    return this._runList;
  }

  protected lineControls(): Control[] {
    const { options, source, t } = this;
    const choose = (change: Partial<RunsOptions>): void => this.choose(change as Partial<O>);
    const smooth = (smoothing: number): void => this.choose({ smoothing } as Partial<O>);
    return [
      smoothingControl(SMOOTHINGS, options.smoothing, smooth, t),
      ...smoothedChip(options.smoothing, smooth, t),
      outliersControl(options.ignore_outliers, change => this.choose(change as Partial<O>), t),
      goControl(step => this.env.goTo(this.picture.goTo(step)), t),
      ...runsControls({ source, options, runs: this._runs.known, choose }, t)
    ];
  }

  /** Read lines of this run and of the others, ready to be drawn. */
  protected async compared(
    lines: number,
    read: (run: ILineRun, ask: ILineAsk) => Promise<readonly ILine[]>,
    signal: AbortSignal,
    align = this.options.align
  ): Promise<IComparedLines | IState> {
    const { env, options, t } = this;
    const { aliases = [], baseline, compare, smoothing } = options;
    const { id, name } = this.source;
    const runs = [{ id, name, source: this.source }, ...(await this._others.open(options.runs))].map(
      (each, at) => ({ ...each, name: aliases[at] || each.name })
    );
    const base = Math.max(0, compare === 'overlay' ? 0 : runs.findIndex(each => each.id === baseline));
    const others = runs.filter((_, at) => at !== base);
    const clocks = await Promise.all(runs.map(({ source }) => source && clockOf(source, align, signal)));
    if (!clocks[0]) {
      return emptyState(unknownClock(align, t), t('Show steps'), () =>
        this.choose({ align: 'step' } as Partial<O>)
      );
    }
    const found = await readRunLines(
      runs.length,
      async (run, ask) => {
        const [{ source = null, name = '' } = {}, clock] = [runs[run], clocks[run]];
        const group = runs.findIndex(each => each.name === name);
        const named = (words: string, of: number): RunNames =>
          others.length === 0
            ? { name: words, label: words }
            : {
                name: `${name} · ${words}`,
                ...(of === 1
                  ? { label: name, entry: runs[aliases[run] ? group : run]?.id ?? '' }
                  : { label: words }),
                ...(aliases[run] && { group })
              };
        return source && clock ? read({ source, run, clock, named }, ask) : [];
      },
      compare,
      { smoothing, steps: env.within(options.steps), points: pointsOf(env.width, lines * runs.length) },
      base
    );
    if (found.lines.length === 0 && others.length > 0) {
      const words = missingWords(others, t).join(' ') || t('Nothing here can be compared.');
      return emptyState(words, t('Compare with no run'), () =>
        this.choose({ runs: [] as string[] } as Partial<O>)
      );
    }
    const shown = shownLines(found.lines, options.hidden);
    return shown.length === 0 && found.lines.length > 0
      ? allHidden(this.legend.hide, t)
      : {
          ...found,
          shown,
          runs,
          others,
          base: base === 0 ? undefined : runs[base]?.name,
          axis: axisOf(found.lines)
        };
  }

  /** Draw compared lines, as the options have it. */
  protected take(found: IComparedLines, { align, over = 'step', ...words }: ILineTexts): void {
    const { env, legend, options, t } = this;
    this.picture.take({
      ...found,
      legend,
      bad: badOf(found.shown),
      transform: options.transform,
      ignoresOutliers: options.ignore_outliers,
      choose: change => this.choose(change as Partial<O>),
      texts: {
        ...axisTexts(align ?? options.align, over, env, t),
        yTitle: words.yTitle,
        colorTitle: words.colorTitle
      },
      ...(words.headers && { headers: words.headers }),
      quantity: words.quantity,
      smoothing: options.smoothing,
      placeWords: placeWords(align ?? options.align, over, t)
    });
  }

  /** The same, those of each unit in a panel of its own; `unitless` names that of those which have none. */
  protected takeByUnit(
    found: IComparedLines,
    unitless: string,
    words: Omit<ILineTexts, 'headers' | 'yTitle'>
  ): IComparedLines {
    const unitOf = unitsOf(found.lines);
    const units = [...new Set(found.shown.map(unitOf))];
    const placed = (lines: readonly ILine[]): ILine[] =>
      lines.map(line => ({ ...line, panel: Math.max(0, units.indexOf(unitOf(line))) }));
    const drawn = {
      ...found,
      lines: placed(found.lines),
      shown: placed(found.shown),
      readSteps: async (run: number, steps: readonly [number, number]) =>
        placed(await found.readSteps(run, steps))
    };
    const headers = units.map(unit => unit || unitless);
    this.take(drawn, { ...words, headers, yTitle: headers[0] ?? unitless });
    return drawn;
  }

  private get legend(): ILinesRead['legend'] {
    const { hidden } = this.options;
    return { hidden, hide: next => this.choose({ hidden: next } as Partial<O>) };
  }

  /** What is looked at, in which steps, and with what it is compared. */
  protected stepsTitle(subject: string, { shown, others, base }: IComparedLines): string {
    const steps = shown.flatMap(({ step, isFaint }) =>
      isFaint ? [] : [step[0] ?? NaN, step[step.length - 1] ?? NaN]
    );
    const [first, last] = [Math.min(...steps), Math.max(...steps)];
    const title = this.t('%1, steps %2 to %3', subject, formatInteger(first), formatInteger(last));
    return comparedTitle(title, this.options, others, this.t, base);
  }

  protected lineWords({ lines, shown, runs, others, base, between }: IComparedLines): string[] {
    const { options, t } = this;
    const there = others.filter(each => lines.some(({ run }) => runs[run] === each));
    const decimatedFrom = shown.reduce((most, line) => Math.max(most, line.isThin ? (line.of ?? 0) : 0), 0);
    return [
      ...(options.smoothing > 1
        ? [
            t(
              'Lines are the trailing mean of %1 points; the numbers themselves are faint.',
              options.smoothing
            )
          ]
        : []),
      ...runWords(options, runs[0]?.name ?? '', others, there, t, base),
      ...betweenWords(between, t, base),
      ...missingWords(
        others.filter(each => !there.includes(each)),
        t
      ),
      ...hiddenWords(lines, options.hidden, t),
      ...scaleWords(scaleOf(options.transform, finiteRange(shown)?.[0] ?? 0), t),
      ...omissionWords({ decimatedFrom }, t)
    ];
  }

  private readonly _others: OtherRuns;
  private _runList: RunList | null = null;
}

export type LineContent = Pick<IContent, 'caption' | 'summary' | 'swatch' | 'title'>;

/** A picture of steps along its x axis. */
export interface ILinesDrawn extends IPictured {
  /** Put the cursor where something moved most, and return its mark; null where nothing did. */
  insight(): IMark | null;
}

/** Words of lines that the picture draws, another picture, or why there is none. */
export type LinesLoaded = { readonly content: IContent | LineContent } | { readonly state: IState };

/** The units of lines: of a run that tells none of a scalar, the one that other runs tell, if that is one. */
function unitsOf(lines: readonly ILine[]): (line: ILine) => string {
  const told = new Map<string, Set<string>>();
  for (const { key, unit } of lines) {
    if (unit) {
      told.set(key, (told.get(key) ?? new Set()).add(unit));
    }
  }
  return ({ key, unit }) => {
    const [other, ...more] = told.get(key) ?? [];
    return unit ?? (other === undefined || more.length > 0 ? '' : other);
  };
}

/** How the steps of lines lie on their x axis; those of the view's own run, where there are some. */
function axisOf(lines: readonly ILine[]): StepAxis {
  const own = lines.filter(line => line.run === 0);
  const xOfStep = new Map<number, number>();
  for (const { step, x } of own.length > 0 ? own : lines) {
    step.forEach((each, at) => xOfStep.set(each, x[at] ?? each));
  }
  const sorted = [...xOfStep].sort(([a], [b]) => a - b);
  const steps = sorted.map(([step]) => step);
  return sorted.every(([step, x]) => step === x)
    ? new StepAxis(steps)
    : new StepAxis(
        steps,
        sorted.map(([, x]) => x)
      );
}
