import { kits, type IViewModule, type KitMatrixOptions } from 'megalens';

export async function load(): Promise<IViewModule<KitMatrixOptions>> {
  const { matrix, matrixOf } = await kits();
  const view = matrix<KitMatrixOptions>({
    streams: ['weight_norms'],
    subject: 'Weight norms',
    empty: 'This run has no weight norms.',
    quantity: 'norm',
    row: 'weight',
    read: async ({ source }) =>
      matrixOf(await source.table('weight_norms'), { row: 'name', step: 'step', value: 'value' })
  });
  return { view };
}
