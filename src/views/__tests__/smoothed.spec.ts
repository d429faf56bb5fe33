import type { ViewOptions } from '../../protocol/views.generated';
import { readView } from '../still';
import { fullRun } from './pictured';
import { caption, showView } from './page';

describe.each<[string, ViewOptions]>([
  ['scalars', { view: 'scalars', names: ['lr'], smoothing: 2 }],
  ['a trend', { view: 'trend', flag: 'MLP1_mat_mul', layers: '1', statistic: 'kept_max', smoothing: 2 }],
  ['statistics', { view: 'statistics', by: [], statistic: 'max', smoothing: 2 }]
])('smoothing in %s', (_, options) => {
  it('is seen: in the toolbar, in the caption, and by the numbers themselves, which stay faint', async () => {
    const view = await showView(fullRun(), options);
    const chip = (): HTMLButtonElement | null =>
      document.querySelector<HTMLButtonElement>('[data-control="smoothed"]');
    expect(chip()?.textContent).toBe('Smoothed: 2 points✕');
    expect(caption()).toMatch(/[Tt]railing mean of 2 points; the numbers themselves are faint/);
    chip()?.click();
    await view.settled();
    expect(view.options).toMatchObject({ smoothing: 0 });
    expect(chip()).toBeNull();
  });

  it('is a trailing mean over the very numbers, in reports as well', async () => {
    const rowsOf = async (request: ViewOptions, faint: boolean): Promise<[number, number][]> => {
      const [still] = await readView(fullRun(), request);
      return (still?.recipe?.datasets['rows'] ?? [])
        .filter(row => row['opacity'] === (faint ? 0.25 : 1) && row['value'] !== null)
        .map(row => [Number(row['x']), Number(row['value'])]);
    };
    const raw = await rowsOf({ ...options, smoothing: 0 } as ViewOptions, false);
    expect(raw.length).toBeGreaterThan(2);
    expect(await rowsOf(options, true)).toEqual(raw);
    const means = raw.map(([x, value], at) => [
      x,
      at === 0 ? value : (value + (raw[at - 1]?.[1] ?? NaN)) / 2
    ]);
    const drawn = await rowsOf(options, false);
    drawn.forEach(([x, value], at) => {
      expect(x).toBe(means[at]?.[0]);
      expect(value).toBeCloseTo(means[at]?.[1] ?? NaN, 9);
    });
    expect(drawn).toHaveLength(raw.length);
  });
});
