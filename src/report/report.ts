import { TOKENS } from '../store/tensor-data';
import { binsOf, type Statistic } from '../aggregate';
import { DARK_THEME, LIGHT_THEME, type ITheme } from '../charts/vega';
import type { IRecipe } from '../charts';
import { drawSVG, vegaLiteSpec } from '../charts/pictures';
import type { IRunReader } from '../client/run-reader';
import type { IRunDetail } from '../client/runs-api';
import { streamTable } from '../protocol/frame-table';
import { viewDefaults } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import { RecordedRun } from '../store/recorded-run';
import type { IRunSource } from '../store/source';
import { openingCode } from '../views/code';
import { readView, type IStill } from '../views/still';
import { translateFrom, type Translate } from '../views/shared/translate';
import { cleanPaths } from '../views/shared/clean-paths';
import type { IViewRuns } from '../views/view';
import { own } from '../protocol/records';
import { reportViews } from '../protocol/view-info';
import { type ITraced, factsOf, type IAuditRow, type IFacts } from './facts';
import { type IPageData, StoredRun } from './stored-run';
import { digestText, notebookText } from './notebook';
import { storedWords, jsonText, pageText, type IDrawn, type IPageParts } from './page';
import { fewScalars, writePageRun } from './page-data';
import { Recorder, type ISlide, cleaned } from './recorder';
import { reportParts } from './report-part';

/** Return at most so many of some steps, spread evenly, in order, with one of them surely among them. */
export function spread(steps: readonly number[], step: number, count: number): number[] {
  if (steps.length <= count) {
    return [...steps];
  }
  if (count <= 1) {
    return [step];
  }
  const chosen = Array.from({ length: count }, (_, at) => {
    const index = Math.round((at * (steps.length - 1)) / (count - 1));
    return steps[index] ?? step;
  });
  if (!chosen.includes(step)) {
    const distance = chosen.map(each => Math.abs(each - step));
    chosen[distance.indexOf(Math.min(...distance))] = step;
  }
  return [...new Set(chosen)].sort((a, b) => a - b);
}

/** A heatmap shows all layers where there are not more. */
const MOST_LAYERS = 9;

/**
 * Return the views of a report that nobody chose: those that `report` of the table of views names, of the
 * first traced flag.
 */
async function defaultViews(run: IRunSource, traced: readonly ITraced[]): Promise<ViewOptions[]> {
  const index = await run.moments?.index();
  const logged = index?.stats.some(({ rows }) => rows > 0) ?? false;
  // What cannot be read has a view, too: it says so.
  const scalars = await run.scalars().catch(() => null);
  const flags = run.hello?.flags ?? [];
  const has = new Set(traced.map(({ flag }) => flag).filter(flag => flag !== TOKENS));
  const first = flags.find(({ name }) => has.has(name)) ?? [...has].map(name => ({ name, layers: [] }))[0];
  const layers = first?.layers ?? [];
  const parts = await reportParts(run);
  const counts: Record<string, boolean> = {
    ...Object.fromEntries(parts.flatMap(part => Object.entries(part.has))),
    moments: logged,
    scalars: !logged || scalars === null || scalars.step.length > 0
  };
  const views = reportViews(
    stream => own(counts, stream) ?? true,
    first === undefined ? [] : [first.name],
    run.hello?.phase
  );
  views.push(...parts.flatMap(part => part.views ?? []));
  // Counts by bin at one step say little: a histogram is drawn over steps.
  const isCounted = traced.some(
    ({ flag, compressor }) => flag === first?.name && binsOf(compressor) !== null
  );
  const told = views.map((view): ViewOptions =>
    isCounted && view.view === 'heatmap' ? { view: 'distribution', flag: view.flag } : view
  );
  return layers.length <= MOST_LAYERS
    ? told
    : told.map(view =>
        'layers' in view && view.layers === 'all' ? { ...view, layers: String(layers[0]) } : view
      );
}

/** What a page with four views takes at most; the steps that it holds are chosen to stay below. */
export const MOST_BYTES = 2_000_000;
/** Most steps that a slider of a page has. */
const MOST_STEPS = 24;
/** Bytes for words and pictures, before these are drawn. */
const PICTURES = 300_000;
/** Bytes of page for each byte of values: half of them, deflated, as text. */
const PACKED = 0.66;
/** Share of the page's bytes that statistics may take. */
const MOMENTS_SHARE = 0.6;
const OVERHEAD = 'megalens_overhead';

export interface IReportJob {
  readonly run: string;
  /** Checked options; null chooses them here. */
  readonly views: readonly ViewOptions[] | null;
  /** The run's name when null. */
  readonly title: string | null;
  readonly format: 'html' | 'ipynb' | 'md';
  /** The run's folder as a notebook opens it; null where it connects to the run. */
  readonly folder: string | null;
  /** Seconds since the epoch. */
  readonly made: number;
  readonly version: string;
  readonly traced: readonly ITraced[];
  /** What the report speaks, as a tag of HTML, and translations by text; none for English. */
  readonly language: string;
  readonly words: Readonly<Record<string, string>>;
  readonly parts: IPageParts;
}

export interface IReportHost {
  /** Open a run by its id; rejects where it cannot be read. */
  open(id: string): Promise<{ readonly detail: IRunDetail; readonly reader: IRunReader }>;
  progress(done: number, total: number, words: string): void;
  /** Pack bytes in the format `deflate`. */
  deflate(bytes: Uint8Array): Uint8Array;
}

interface IRead {
  readonly options: ViewOptions;
  readonly stills: readonly IStill[];
  readonly slide: ISlide | null;
  /** Steps of the slide that are held, ascending. */
  held: readonly number[];
  readonly notes: readonly string[];
}

/** Make a report: the text of the whole file. */
export async function buildReport(request: IReportJob, host: IReportHost): Promise<string> {
  const { detail, reader } = await host.open(request.run);
  const t = translateFrom(request.words);
  const plain = new RecordedRun(request.run, detail, reader);
  const views = request.views ?? (await defaultViews(plain, request.traced));
  const total = 2 * views.length;
  const budget = request.format === 'html' ? MOST_BYTES - request.parts.script.length - PICTURES : MOST_BYTES;
  const recorder = Recorder.of(request.run, detail, reader, budget * MOMENTS_SHARE);
  const others = new OthersOf(host, budget * MOMENTS_SHARE);
  const read: IRead[] = [];
  for (const [index, options] of views.entries()) {
    await tell(host, index, total, `Reading ${'flag' in options ? options.flag : options.view}`);
    const room = request.format === 'html' ? budget : 0;
    read.push(
      await readOne({ recorder, others, t }, options, index, room).catch(reason => ({
        ...{ options, stills: [broken(options.view, reason, t)] },
        ...{ slide: null, held: [], notes: [] }
      }))
    );
  }
  const facts = factsOf(
    cleaned(detail),
    request.traced,
    await auditOf(reader, request.run),
    await overheads(plain),
    t
  );
  const title = request.title ?? facts.name;
  const text = {
    html: () => page(request, host, { read, recorder, others, facts, title, t }),
    ipynb: () => notebook(request, host, { read, facts, title, t }),
    md: () =>
      digestText(
        facts,
        read.flatMap(({ stills }) => stills),
        title,
        request.made,
        t
      )
  }[request.format];
  const written = await text();
  await tell(host, total, total, 'Done');
  return written;
}

/** Report the progress, and let it be seen before the work goes on. */
async function tell(host: IReportHost, done: number, total: number, words: string): Promise<void> {
  host.progress(done, total, words);
  await new Promise(resolve => setTimeout(resolve));
}

async function readOne(
  { recorder, others, t }: Pick<IParts, 'recorder' | 'others' | 't'>,
  options: ViewOptions,
  index: number,
  budget: number
): Promise<IRead> {
  const partly = needsValues(options);
  recorder.begin(index, partly);
  const stills = await readView(recorder, options, { runs: others.runs, translate: t });
  const { slide } = recorder;
  let held: readonly number[] = [];
  if (slide !== null) {
    const count = Math.floor(budget / Math.max(1, slide.bytes * PACKED));
    held = spread(slide.steps, slide.step, Math.min(MOST_STEPS, count));
    await recorder.fetch(slide, held);
  }
  const thinned =
    'statistic' in options && 'flag' in options ? thin(recorder, options.statistic, budget, t) : null;
  if (thinned === null) {
    return { options, stills, slide, held, notes: [] };
  }
  // What is drawn is what is held.
  const drawn = await readView(heldRun(recorder), options, { runs: others.runs, translate: t });
  return { options, stills: drawn, slide, held, notes: [thinned] };
}

/** What stands where a view cannot be read or drawn: the report goes on with the others. */
function broken(title: string, reason: unknown, t: Translate): IStill {
  const sentence = reason instanceof Error ? reason.message : String(reason);
  return {
    title,
    caption: [cleanPaths(`${t('This could not be drawn.')} ${sentence}`)],
    summary: '',
    recipe: null
  };
}

function thin(
  recorder: Recorder,
  statistic: Statistic | undefined,
  budget: number,
  t: Translate
): string | null {
  const left = recorder.thin(statistic ?? 'rms', budget / PACKED);
  return left === null
    ? null
    : t('Drawn from %1 points a line, keeping every minimum and maximum; the others were left out.', left.of);
}

/** Whether a view takes statistics of a part of each tensor, so that its sums do not suffice. */
function needsValues(options: ViewOptions): boolean {
  const { positions = 'all', interval = 'none' } = options.view === 'trend' ? options : {};
  return positions.trim() !== 'all' || interval !== 'none';
}

function heldRun(recorder: Recorder): StoredRun {
  const { id, about, held, storedScalars, recordedMoments: moments } = recorder;
  const { storedAnswers: answers } = recorder;
  return new StoredRun({ id, detail: about, ...held, scalars: storedScalars, moments, answers });
}

interface IParts {
  readonly read: readonly IRead[];
  readonly recorder: Recorder;
  readonly others: OthersOf;
  readonly facts: IFacts;
  readonly title: string;
  readonly t: Translate;
}

async function page(
  { parts, version, made, language, words }: IReportJob,
  host: IReportHost,
  { read, recorder, others, facts, title, t }: IParts
): Promise<string> {
  const drawn: { read: IRead; stills: IDrawn[] }[] = [];
  for (const [index, each] of read.entries()) {
    await tell(host, read.length + index, 2 * read.length, `Drawing ${each.stills[0]?.title ?? ''}`);
    drawn.push({ read: each, stills: await Promise.all(each.stills.map(still => drawStillOrWhy(still, t))) });
  }
  const scalars = fewScalars(recorder.storedScalars);
  for (;;) {
    const data: IPageData = {
      format: 2,
      views: read.map(each => each.options),
      runs: [
        writePageRun(recorder, scalars, host.deflate),
        ...others.opened.map(each => writePageRun(each, fewScalars(each.storedScalars), host.deflate))
      ],
      ...(language !== 'en' && { words })
    };
    const figures = drawn.map(({ read: each, stills }) => ({
      options: each.options,
      stills,
      notes: [
        ...each.notes,
        ...(each.slide && each.held.length < each.slide.steps.length
          ? [storedWords(each.held, each.slide.steps.length, t)]
          : [])
      ]
    }));
    const text = pageText({ title, facts, figures, data, parts, version, made, language, t });
    const over = new TextEncoder().encode(text).length - MOST_BYTES;
    if (over <= 0 || !fewer(recorder, read, over / jsonText(data).length)) {
      return text;
    }
  }
}

/** Give up a part of the steps that sliders have; false where each has only the one that is drawn. */
function fewer(recorder: Recorder, read: readonly IRead[], part: number): boolean {
  let less = false;
  read.forEach((each, index) => {
    const { slide, held } = each;
    if (slide !== null && held.length > 1) {
      const count = Math.max(1, Math.min(held.length - 1, Math.floor(held.length * (1 - part) - 0.5)));
      each.held = spread(held, slide.step, count);
      recorder.keep(index, slide, new Set(each.held));
      less = true;
    }
  });
  return less;
}

async function notebook(
  { run, folder, made }: IReportJob,
  host: IReportHost,
  { read, facts, title, t }: Pick<IParts, 'read' | 'facts' | 'title' | 't'>
): Promise<string> {
  const cells = [];
  for (const [index, { options, stills, slide }] of read.entries()) {
    await tell(host, read.length + index, 2 * read.length, `Drawing ${stills[0]?.title ?? ''}`);
    const pictures = stills.map(async ({ recipe, title: heading, caption }) => {
      const words = { title: heading, caption };
      const look = { theme: LIGHT_THEME, words };
      const nothing = { svg: '', spec: null };
      try {
        return recipe === null
          ? { ...words, ...nothing }
          : { ...words, svg: await drawSVG(recipe, look), spec: vegaLiteSpec(recipe, look) };
      } catch (reason) {
        return { ...broken(heading, reason, t), ...nothing };
      }
    });
    cells.push({ options: pinned(options, slide), pictures: await Promise.all(pictures) });
  }
  return notebookText(facts, cells, title, openingCode(run, folder), made, t);
}

/** What shows the same step when the cell is run again, also where the run went on meanwhile. */
function pinned(options: ViewOptions, slide: ISlide | null): ViewOptions {
  if (slide === null || !('step' in viewDefaults(options.view))) {
    return options;
  }
  const shown = { ...options, step: slide.step };
  return shown;
}

/** Colours that are the page's own, and follow it from light to dark. */
function pageTheme(base: ITheme): ITheme {
  const own = (name: string): string => `var(--${name})`;
  return {
    ...base,
    text: own('text'),
    muted: own('muted'),
    line: own('line'),
    grid: own('grid'),
    background: 'transparent'
  };
}

async function drawStill({ title, caption, summary, recipe, inDark }: IStill): Promise<IDrawn> {
  const words = { title, caption, summary };
  if (recipe === null) {
    return { ...words, light: '', dark: null };
  }
  const draw = (from: IRecipe, theme: ITheme): Promise<string> => drawSVG(from, { theme: pageTheme(theme) });
  const dark = inDark ? await draw(inDark(), DARK_THEME) : null;
  return { ...words, light: await draw(recipe, LIGHT_THEME), dark };
}

const drawStillOrWhy = (still: IStill, t: Translate): Promise<IDrawn> =>
  drawStill(still).catch(reason => drawStill(broken(still.title, reason, t)));

async function auditOf(reader: IRunReader, id: string): Promise<IAuditRow[]> {
  const { bytes } = await reader.stream(id, 'audit', {});
  const table = streamTable('audit', bytes);
  const column = (name: string): { at(row: number): unknown } => table.getChild(name);
  const [step, who, action, detail] = ['step', 'who', 'action', 'detail'].map(column);
  return Array.from({ length: table.numRows }, (_, row) => ({
    step: Number(step?.at(row)),
    who: String(who?.at(row)),
    action: String(action?.at(row)),
    detail: String(detail?.at(row))
  }));
}

async function overheads(run: IRunSource): Promise<number[]> {
  // A view of scalars says why these cannot be read.
  const scalars = run.status?.overhead ? null : await run.scalars([OVERHEAD]).catch(() => null);
  return Array.from(scalars?.value ?? []);
}

/** The runs that views compare with, each opened once. */
class OthersOf {
  constructor(
    private readonly host: IReportHost,
    private readonly budget: number
  ) {}

  readonly runs: IViewRuns = {
    list: () => Promise.resolve([]),
    acquire: async id => {
      const opened = this._opened.get(id) ?? this._open(id);
      this._opened.set(id, opened);
      return { source: await opened, dispose: () => undefined };
    }
  };

  readonly opened: Recorder[] = [];

  private async _open(id: string): Promise<Recorder> {
    const { detail, reader } = await this.host.open(id);
    const recorder = Recorder.of(id, detail, reader, this.budget);
    this.opened.push(recorder);
    return recorder;
  }

  private readonly _opened = new Map<string, Promise<Recorder>>();
}
