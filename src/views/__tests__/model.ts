import { fullViewOptions } from '../../protocol/view-options';
import type { ViewOptions } from '../../protocol/views.generated';
import type { Loaded } from '../shared/content';
import { untranslated } from '../shared/translate';
import type { IViewModel } from '../shared/definition';
import type { IViewEnvironment } from '../shared/view-model';
import { loadView } from '../view-code';
import type { MemoryRun } from '../../store/__tests__/memory-run';

const nothing = (): void => undefined;

/** Read what a view, or the first part of one, draws of a run, without a page. `save` hears of files that are saved. */
export async function loadModel(
  run: MemoryRun,
  wished: ViewOptions,
  save: (name: string, type: string, text: string) => void = nothing
): Promise<{ model: IViewModel; loaded: Loaded }> {
  const options = fullViewOptions(wished);
  const env = {
    t: untranslated,
    options,
    width: 800,
    frame: null,
    zoom: null,
    isDark: false,
    isUtc: true,
    painter: null,
    actions: { retry: nothing, cancel: nothing, reset: nothing, copy: nothing, copyCode: nothing, save },
    within: (steps: [number, number] | null) => steps,
    choose: nothing,
    refresh: nothing,
    place: nothing,
    waits: nothing,
    follow: nothing,
    fail: (reason: unknown) => {
      throw reason;
    }
  } satisfies IViewEnvironment;
  const code = await loadView(options.view);
  if (!('view' in code)) {
    throw new Error(`Expected a view of this package, got ${options.view}.`);
  }
  const { view } = code;
  const whole = { ...env, runs: null, relayout: nothing, rearrange: nothing };
  const model =
    'create' in view
      ? view.create(run, env)
      : (view.compose(run, whole).layout()[0]?.create(run, env) as IViewModel);
  return { model, loaded: await model.load(new AbortController().signal) };
}
