import { drawSVG, LIGHT_THEME } from '../../charts';
import type { IRunSource } from '../../store/source';
import { readView } from '../still';
import type { Pictured } from './pictured';

/** Check that views are read and drawn where there is no page. */
export function checkStills(pictured: Pictured, makeRun: () => IRunSource): void {
  beforeAll(() => {
    for (const name of [
      'document',
      'window',
      'navigator',
      'HTMLElement',
      'Worker',
      'requestAnimationFrame'
    ]) {
      Reflect.deleteProperty(globalThis, name);
    }
  });

  describe.each(pictured)('%s', (_, options, pictures) => {
    let read: ReturnType<typeof readView> | undefined;
    const stillsOf = (): ReturnType<typeof readView> => (read ??= readView(makeRun(), options));
    afterAll(() => {
      read = undefined;
    });

    it('is read and drawn without a page', async () => {
      const stills = await stillsOf();
      expect(stills.length).toBe(pictures);
      for (const { title, caption, summary, recipe } of stills) {
        expect(title).not.toBe('');
        expect(summary).not.toBe('');
        if (recipe === null) {
          throw new Error(`Expected a picture, got: ${caption.join(' ')}`);
        }
        const pictures = [...(recipe.datasets['pictures'] ?? [])];
        expect(pictures.every(({ url }) => String(url).startsWith('data:image/png;base64,'))).toBe(true);
        const svg = await drawSVG(recipe, { theme: LIGHT_THEME, words: { title, caption } });
        expect(svg).toContain('<svg');
        expect(svg).toContain(title.slice(0, 12));
        expect((svg.match(/<image /g) ?? []).length).toBe(pictures.length);
      }
    });

    it('takes no colours of its data from the theme, and gives those of a dark page where they are others', async () => {
      const plain = (svg: string): string => svg.replace(/clip\d+/g, 'clip');
      for (const { recipe, inDark } of await stillsOf()) {
        const [light, dark] = [false, true].map(tone => ({ theme: { ...LIGHT_THEME, dark: tone } }));
        const [one, other] = [
          await drawSVG(recipe as never, light as never),
          await drawSVG(recipe as never, dark as never)
        ];
        expect(plain(one)).toBe(plain(other));
        if (inDark) {
          expect(plain(await drawSVG(inDark(), dark as never))).not.toBe(plain(one));
        }
      }
    });
  });
}
