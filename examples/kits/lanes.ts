import { kits, type IViewModule, type KitLaneOptions } from 'megalens';

export async function load(): Promise<IViewModule<KitLaneOptions>> {
  const { lanes, lanesOf } = await kits();
  const columns = { lane: 'worker', begin: 'begin', end: 'end', kind: 'kind', name: 'file', step: 'step' };
  const view = lanes<KitLaneOptions>({
    streams: ['loader_spans'],
    subject: 'Data loader',
    empty: 'This run has no spans of its data loader.',
    since: 'since the run began',
    lane: 'worker',
    legend: 'work',
    read: async ({ source }) => lanesOf(await source.table('loader_spans'), columns)
  });
  return { view };
}
