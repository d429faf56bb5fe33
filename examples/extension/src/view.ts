import { kits, type IViewModule, type KitLineOptions } from 'megalens';

/** What the descriptor's schema lets through, with every default. */
export interface INormsOptions extends KitLineOptions {
  contains: string;
  relative: boolean;
}

/** Weight norms over steps. The rows are read here; a picture of lines makes the rest. */
export async function load(): Promise<IViewModule<INormsOptions>> {
  const { lines, linesOf } = await kits();
  const view = lines<INormsOptions>({
    streams: ['weight_norms'],
    subject: 'Weight norms',
    empty: 'This run has no weight norms.',
    quantity: ({ relative }) => (relative ? 'relative norm' : 'norm'),
    legend: 'weight',
    read: async ({ source, options: { contains, relative } }) => {
      const rows = await source.table('weight_norms');
      return linesOf(rows, { name: 'name', step: 'step', value: 'value' })
        .filter(({ name }) => name.includes(contains))
        .map(line => (relative ? { ...line, values: scaled(line.values) } : line));
    },
    controls: ({ relative: pressed }, choose) => [
      {
        kind: 'toggle',
        id: 'relative',
        text: 'Relative',
        title: 'Divide each line by its first value',
        pressed,
        change: relative => choose({ relative })
      }
    ]
  });
  return { view };
}

const scaled = (values: ArrayLike<number>): number[] => Array.from(values, value => value / (values[0] ?? 1));
