import { fullViewOptions } from '../../protocol/view-options';
import { mount } from '../mount';
import { MountedComposition } from '../mount/mounted-composition';
import { MountedView } from '../mount/mounted-view';
import { readView } from '../still';
import type { IViewDefinition } from '../shared/definition';
import { loadView } from '../view-code';
import type { IRunSource } from '../../store/source';
import type { Pictured } from './pictured';

// A page without layout is as wide as this.
const WIDTH = 640;

/** Parts of compositions that are tables. */
const UNPICTURED = ['moves', 'way', 'list'];

const sorted = (recipe: object): object =>
  Object.fromEntries(Object.entries(recipe).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Check that the recipes of a mounted view and of its still pictures are one, byte for byte. */
export function checkRecipes(pictured: Pictured, makeRun: () => IRunSource): void {
  it.each(pictured)('%s has one recipe, mounted and still', async (_, options) => {
    const stills = await readView(makeRun(), options, { width: WIDTH });
    const { view } = (await loadView(options.view)) as { view: IViewDefinition };
    const node = document.createElement('div');
    document.body.append(node);
    const drawn =
      options.view === 'statistics' && options.kind === 'table' ? { ...options, kind: 'lines' } : options;
    const mounted = mount(view, node, makeRun(), fullViewOptions(drawn as typeof options), {
      renderer: 'svg'
    });
    await mounted.settled();
    const parts =
      mounted instanceof MountedComposition
        ? [...mounted.parts]
            .filter(([key, { node: at }]) => !UNPICTURED.includes(key) && !at.hidden)
            .map(([, part]) => part)
        : [mounted];
    expect(parts).toHaveLength(stills.length);
    for (const [at, part] of parts.entries()) {
      if (!(part instanceof MountedView)) {
        throw new Error('Expected a mounted view.');
      }
      const { recipe, words } = await part.exported();
      // The page measures what stands beside the plots, and there is no page to measure for a still picture.
      const still = { ...stills[at]?.recipe, width: recipe.width };
      expect(JSON.stringify(sorted(recipe))).toBe(JSON.stringify(sorted(still)));
      expect(words.title).toBe(stills[at]?.title);
      expect(stills[at]?.caption.slice(0, words.caption.length)).toEqual(words.caption);
    }
    mounted.dispose();
    node.remove();
  });
}
