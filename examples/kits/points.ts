import { kits, type IViewModule, type KitPointOptions } from 'megalens';

export async function load(): Promise<IViewModule<KitPointOptions>> {
  const { points, pointsOf } = await kits();
  const view = points<KitPointOptions>({
    streams: ['weight_norms'],
    subject: 'Weight norms by step',
    empty: 'This run has no weight norms.',
    x: 'step',
    y: 'norm',
    group: 'weight',
    read: async ({ source }) =>
      pointsOf(await source.table('weight_norms'), { name: 'name', x: 'step', y: 'value', group: 'name' })
  });
  return { view };
}
