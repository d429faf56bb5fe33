import { sized, type IRecipe } from '../charts';
import { fullViewOptions } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import { cleanPaths } from './shared/clean-paths';
import { type IContent, type Loaded, squareExtent } from './shared/content';
import {
  type Create,
  type ICompositionEnvironment,
  isPart,
  type IViewPart,
  ViewError
} from './shared/definition';
import { eventsOf, withEvents } from './shared/event-strip';
import { originWords } from './shared/origin-words';
import { NO_ACTIONS } from './shared/states';
import { untranslated, type Translate } from './shared/translate';
import type { IViewEnvironment } from './shared/view-model';
import type { IViewRuns } from './view';
import { loadView } from './view-code';

/**
 * One picture of a view, without a page. A view may give several (history: map and tensor; the explorer's
 * overview).
 */
export interface IStill {
  readonly title: string;
  /** A sentence each; where there is nothing to draw it says why. */
  readonly caption: readonly string[];
  /** What the picture shows, in words; '' where there is nothing. */
  readonly summary: string;
  /**
   * Null where there is nothing to draw. Images are data URLs; `width` and `height` are those of one plot.
   */
  readonly recipe: IRecipe | null;
  /** The same in the colours of a dark page; absent where these are no others. */
  readonly inDark?: () => IRecipe;
}

/** Where a still picture will be seen. */
export interface IStillEnvironment {
  /** The user's language. */
  readonly translate?: Translate;
  /** Pixels of the whole picture. */
  readonly width?: number;
  /** Other runs to compare with; those that are not among them are named in the caption. */
  readonly runs?: IViewRuns;
  /** Whether its lines are to be read on a dark page. */
  readonly dark?: boolean;
}

const WIDTH = 850;

/**
 * Read what a view shows now, as pictures that any host can draw: the same rows give the same recipe as the
 * mounted view.
 *
 * @param options At least `view`, and `flag` where the view has one.
 * @returns At least one picture, from top to bottom.
 * @throws {ProtocolError} When an option is not as the contract says; names the field.
 * @throws {StoreError} When the run cannot be read.
 */
export async function readView(
  source: IRunSource,
  options: ViewOptions,
  environment: IStillEnvironment = {},
  signal: AbortSignal = new AbortController().signal
): Promise<readonly IStill[]> {
  const full = pictured(fullViewOptions(options));
  const code = await loadView(full.view);
  if (!('view' in code)) {
    throw new ViewError('This view has no picture without a page.');
  }
  const { view } = code;
  if ('create' in view) {
    return [await readPart(source, full, view.create, environment, signal)];
  }
  const composition = view.compose(source, compositionOf(full, environment));
  try {
    await composition.prepare?.();
    const stills = new Map<string, IStill>();
    for (const part of composition
      .layout()
      .filter(isPart)
      .filter(each => !each.unpictured)) {
      stills.set(part.key, await readPart(source, part.options, create(part), environment, signal));
    }
    const isDrawn = (key: string): boolean => (stills.get(key)?.recipe ?? null) !== null;
    return [...stills].filter(([key]) => composition.shows(key, isDrawn)).map(([, still]) => still);
  } finally {
    composition.dispose?.();
  }
}

/** A table is no picture: what it lists is drawn as lines. */
function pictured(options: Required<ViewOptions>): Required<ViewOptions> {
  return options.view === 'statistics' && options.kind === 'table' ? { ...options, kind: 'lines' } : options;
}

const create =
  (part: IViewPart): Create =>
  (source, env) =>
    part.create(source, env);

async function readPart(
  source: IRunSource,
  options: Required<ViewOptions>,
  make: Create,
  environment: IStillEnvironment,
  signal: AbortSignal
): Promise<IStill> {
  // A view may draw before it has read all; nobody waits for a still picture meanwhile.
  const rest: Promise<unknown>[] = [];
  const model = make(
    source,
    pageless(options, environment, more => rest.push(more))
  );
  try {
    let loaded = await model.load(signal);
    while (rest.length > 0) {
      await rest.shift();
      loaded = await model.load(signal);
    }
    const t = environment.translate ?? untranslated;
    const axis = model.stepAxis();
    if ('content' in loaded && axis) {
      loaded = { content: withEvents(loaded.content, await eventsOf(source), axis, t) };
    }
    return stillOf(loaded, model.subject, originWords(source.hello, t), environment.width ?? WIDTH);
  } finally {
    model.dispose?.();
  }
}

function stillOf(loaded: Loaded, subject: string, origin: readonly string[], width: number): IStill {
  const content: Pick<IContent, 'caption' | 'notes' | 'printed' | 'recipe' | 'summary' | 'title'> =
    'content' in loaded
      ? loaded.content
      : { title: subject, caption: [loaded.state.sentence], summary: '', recipe: null };
  const { printed } = content;
  const recipe = printed?.() ?? content.recipe;
  const noted = (content.notes ?? []).filter(({ tone }) => tone !== undefined).map(({ text }) => text);
  return {
    title: cleanPaths(content.title),
    caption: [...origin, ...content.caption, ...noted].map(cleanPaths),
    summary: cleanPaths(content.summary),
    recipe: recipe && fitted(recipe, loaded, width),
    ...(printed ? { inDark: () => fitted(printed(true), loaded, width) } : {})
  };
}

/**
 * A recipe in the size of the picture; where a unit must be as long across as down, with the extent that
 * makes it so.
 */
function fitted(recipe: IRecipe, loaded: Loaded, width: number): IRecipe {
  const fit = sized(recipe, width);
  if (!('content' in loaded && loaded.content.isSquare)) {
    return fit;
  }
  const { x, y } = squareExtent(loaded.content.extent, { width: fit.width ?? 0, height: fit.height ?? 0 });
  return { ...fit, params: { ...fit.params, x0: x[0], x1: x[1], y0: y[0], y1: y[1] } };
}

/**
 * What a view knows where there is no page: its options and how wide it may be. Nothing can be pressed,
 * zoomed or chosen.
 */
function pageless(
  options: Required<ViewOptions>,
  { translate = untranslated, width = WIDTH, dark = false, runs }: IStillEnvironment,
  follow: (rest: Promise<unknown>) => void
): IViewEnvironment {
  return {
    t: translate,
    options,
    width,
    frame: null,
    zoom: null,
    isDark: dark,
    isUtc: true,
    painter: null,
    runs: runs ?? null,
    actions: NO_ACTIONS,
    within: steps => steps,
    pinned: null,
    pinnedPosition: null,
    pinPosition: nothing,
    choose: nothing,
    refresh: nothing,
    place: nothing,
    goTo: nothing,
    waits: nothing,
    follow,
    say: nothing,
    fail: nothing
  };
}

function compositionOf(
  options: Required<ViewOptions>,
  { translate = untranslated, runs, dark = false }: IStillEnvironment
): ICompositionEnvironment {
  return {
    t: translate,
    options,
    runs: runs ?? null,
    openView: null,
    frame: null,
    isStill: true,
    isDark: dark,
    choose: nothing,
    relayout: nothing,
    rearrange: nothing,
    refresh: nothing
  };
}

const nothing = (): void => undefined;
