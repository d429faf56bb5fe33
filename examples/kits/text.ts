import { kits, type IViewModule, type KitTextOptions } from 'megalens';

export async function load(): Promise<IViewModule<KitTextOptions>> {
  const { text, textOf } = await kits();
  const columns = { text: 'text', value: 'norm', position: 'position', facts: { layer: 'layer' } };
  const view = text<KitTextOptions>({
    streams: ['token_norms'],
    subject: 'Norms of tokens',
    empty: 'This run has no norms of tokens.',
    quantity: 'norm',
    read: async ({ source }) => textOf(await source.table('token_norms'), columns)
  });
  return { view };
}
