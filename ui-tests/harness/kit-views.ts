import type { IStreamRows } from '../../src/store/row-store';
import { kitOptions, type KitName } from '../../src/protocol/kit-options';
import { registerView } from '../../src/views/other-views';
import type { IViewModule } from '../../src/views/other-views';

/** Columns of each stream that an example reads, by its name. */
export type KitRows = Readonly<Record<string, Readonly<Record<string, readonly (number | string)[]>>>>;

/** The examples of the docs, whose code is loaded when they are shown. */
const LOADS: Readonly<Record<KitName, () => Promise<{ load(): Promise<IViewModule<never>> }>>> = {
  lines: () => import('../../examples/kits/lines'),
  matrix: () => import('../../examples/kits/matrix'),
  lanes: () => import('../../examples/kits/lanes'),
  points: () => import('../../examples/kits/points'),
  text: () => import('../../examples/kits/text')
};

export const KITS = Object.keys(LOADS) as KitName[];

/** Make the example of each kit a view of the page: `kit_lines`. */
export function registerKits(): void {
  for (const kit of KITS) {
    const descriptor = {
      name: `kit_${kit}`,
      title: kit,
      summary: kit,
      label: kit,
      command: `kits:${kit}`,
      offer: [],
      needs: { streams: [], flag: false },
      options: kitOptions(kit)
    };
    registerView(descriptor, async () => (await LOADS[kit]()).load());
  }
}

/** What a run answers that has these rows. */
export const tableOf =
  (rows: KitRows) =>
  async (stream: string): Promise<IStreamRows> => {
    const columns = Object.fromEntries(
      Object.entries(rows[stream] ?? {}).map(([name, cells]) => [
        name,
        typeof cells[0] === 'number' ? Float64Array.from(cells, Number) : cells.map(String)
      ])
    );
    const [length = 0] = Object.values(columns).map(each => each.length);
    return { columns, length, evictedRows: 0, sampledEvery: 1 };
  };
