import { kits, type IViewModule, type KitLineOptions } from 'megalens';

export async function load(): Promise<IViewModule<KitLineOptions>> {
  const { lines, linesOf } = await kits();
  const view = lines<KitLineOptions>({
    streams: ['weight_norms'],
    subject: 'Weight norms',
    empty: 'This run has no weight norms.',
    quantity: 'norm',
    legend: 'weight',
    read: async ({ source }) =>
      linesOf(await source.table('weight_norms'), { name: 'name', step: 'step', value: 'value' })
  });
  return { view };
}
