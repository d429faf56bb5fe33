import { fullViewOptions } from '../../protocol/view-options';
import type { ViewOptions } from '../../protocol/views.generated';
import type { ITextPosition } from '../../store/run-link';
import type { Loaded } from '../shared/content';
import { untranslated } from '../shared/translate';
import { isPart, type IViewModel } from '../shared/definition';
import type { IViewEnvironment } from '../shared/view-model';
import { loadView } from '../view-code';
import type { MemoryRun } from '../../store/__tests__/memory-run';

const nothing = (): void => undefined;

/** Read what a view, or the first part of one, draws of a run, without a page. `save` hears of files that are saved, `rest` waits for what is read after, `zoom` is what is shown of the picture. */
export async function loadModel(
  run: MemoryRun,
  requested: ViewOptions,
  save: (name: string, type: string, text: string) => void = nothing,
  others: readonly MemoryRun[] = [],
  zoom: IViewEnvironment['zoom'] = null
): Promise<{ model: IViewModel; loaded: Loaded; rest: () => Promise<unknown> }> {
  const followed: Promise<unknown>[] = [];
  const options = fullViewOptions(requested);
  const runs =
    others.length === 0
      ? null
      : {
          list: () => Promise.resolve(others),
          acquire: async (id: string) => {
            const source = others.find(each => each.id === id);
            return source ? { source, dispose: nothing } : Promise.reject(new Error(`no run ${id}`));
          }
        };
  const env = {
    t: untranslated,
    options,
    width: 800,
    frame: null,
    zoom,
    isDark: false,
    isUtc: true,
    painter: null,
    runs,
    actions: { retry: nothing, cancel: nothing, reset: nothing, copy: nothing, copyCode: nothing, save },
    within: (steps: [number, number] | null) => steps,
    pinned: null as number | null,
    pinnedPosition: null as ITextPosition | null,
    pinPosition: nothing,
    choose: nothing,
    refresh: nothing,
    place: nothing,
    goTo: nothing,
    waits: nothing,
    follow: (more: Promise<unknown>) => void followed.push(more),
    say: () => undefined,
    fail: (reason: unknown) => {
      throw reason;
    }
  } satisfies IViewEnvironment;
  const code = await loadView(options.view);
  if (!('view' in code)) {
    throw new Error(`Expected a view of this package, got ${options.view}.`);
  }
  const { view } = code;
  const whole = {
    ...env,
    runs: null,
    openView: null,
    height: 0,
    isStill: true,
    relayout: nothing,
    rearrange: nothing
  };
  const model =
    'create' in view
      ? view.create(run, env)
      : (view.compose(run, whole).layout().find(isPart)?.create(run, env) as IViewModel);
  const loaded = await model.load(new AbortController().signal);
  return { model, loaded, rest: () => Promise.all(followed) };
}
