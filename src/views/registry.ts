import { fullViewOptions } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import type { IRunSource } from '../store/source';
import { loadView, VIEW_CODE } from './view-code';
import type { IView, IViewHost } from './view';

/** Name of a view. */
export type ViewName = ViewOptions['view'];

/** Every view by name, with the word that a menu shows. */
export const VIEW_TITLES: Readonly<Record<ViewName, string>> = {
  heatmap: 'Heatmap',
  trend: 'Trend',
  scalars: 'Scalars',
  history: 'History',
  moments: 'Moments'
};

/**
 * Begin to load what a view is made of and drawn with.
 *
 * @param options As for {@link mountView}.
 * @param source The run, while it is still looked up.
 * @throws {ProtocolError} When an option is not as the contract says; names the field.
 */
export function preloadView(options: ViewOptions, source: Promise<IRunSource>): void {
  const { view } = fullViewOptions(options);
  // What does not load now is told when the view needs it.
  const toldLater = (): undefined => undefined;
  VIEW_CODE[view]().catch(toldLater);
  // Vega keeps the page busy for a tenth of a second: the server had better be at work then.
  void source
    .then(open => preloadRows(view, open))
    .catch(toldLater)
    .then(async () => (await import('../charts/vega')).loadVega())
    .catch(toldLater);
}

/** Read what a view asks of a run first; the source keeps it. */
async function preloadRows(name: ViewName, source: IRunSource): Promise<void> {
  if (name === 'moments') {
    await source.moments?.index();
  }
}

/** Whether a value names a view. */
export function isViewName(value: unknown): value is ViewName {
  return typeof value === 'string' && value in VIEW_TITLES;
}

/**
 * Put the view that the options name into an empty node. The view's code, Vega and all, is loaded on first use.
 *
 * @param node An element without children; its width is the picture's.
 * @param source The run. The view does not dispose it.
 * @param options At least `view`, and `flag` where the view has one.
 * @param host What the host gives: translator, report export.
 * @throws {ProtocolError} When an option is not as the contract says; names the field.
 */
export async function mountView(
  node: HTMLElement,
  source: IRunSource,
  options: ViewOptions,
  host: IViewHost = {}
): Promise<IView> {
  const full = fullViewOptions(options);
  preloadRows(full.view, source).catch(() => undefined);
  const [{ mount }, { view }] = await Promise.all([import('./mount'), loadView(full.view)]);
  return mount(view, node, source, full, host);
}
