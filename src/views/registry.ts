import { isHere, viewInfo, viewInfos, type ViewName } from '../protocol/view-info';
import { fullViewOptions } from '../protocol/view-options';
import type { ViewOptions } from '../protocol/views.generated';
import { own } from '../protocol/records';
import type { IRunSource } from '../store/source';
import type { IView, IViewHost } from './view';
import { loadView } from './view-code';

/** What a run is asked first, by the stream that a view needs; the source keeps it. */
const FIRST: Readonly<Record<string, (source: IRunSource) => Promise<unknown> | undefined>> = {
  moments: source => source.moments?.index()
};

/**
 * Load what all views are made of and drawn with, and draw once unseen, so that the first view that is opened
 * waits for its rows only. Each piece awaits `idle`, until the page has nothing else to do.
 */
export async function preloadViews(idle: () => Promise<void>): Promise<void> {
  const ours = viewInfos().flatMap(({ name }) => (isHere(name) ? [name as ViewName] : []));
  const pieces: readonly (() => Promise<unknown>)[] = [
    () => import('./mount'),
    ...ours.map(name => () => loadView(name)),
    async () => (await import('./heatmap/text-source')).preloadTextRows(),
    async () => (await import('../aggregate/load-tables')).loadTables(),
    async () => (await import('../charts/vega')).loadVega(),
    async () => (await import('../charts/vega')).warmVega()
  ];
  for (const piece of pieces) {
    await idle();
    await piece();
  }
}

async function preloadRows(view: string, source: IRunSource): Promise<void> {
  await Promise.all((viewInfo(view)?.needs.streams ?? []).map(stream => own(FIRST, stream)?.(source)));
}

/**
 * Put the view that the options name into an empty node. The view's code, Vega and all, is loaded on first
 * use.
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
  const [{ mount }, code] = await Promise.all([import('./mount'), loadView(full.view)]);
  if ('view' in code) {
    return mount(code.view, node, source, full, host);
  }
  const { OtherView } = await import('./other-view');
  return OtherView.mount(code, node, source, full, host);
}
