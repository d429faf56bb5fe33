import { Chart } from '../../charts';
import { LIGHT_THEME } from '../../charts/vega';
import { axisTexts, placeWords } from '../kits/lines/step-axis';
import { lineRecipe } from '../kits/lines/line-recipe';

const t = (text: string, ...values: unknown[]): string =>
  text.replace(/%(\d)/g, (_, at: string) => String(values[Number(at) - 1]));

it.each([
  ['seconds', [0, 8], ['0:00:00', '0:00:02', '0:00:04', '0:00:06', '0:00:08'], '0:00:09'],
  ['minutes', [50, 1250], ['0:02:00', '0:10:00', '0:20:00'], '0:18:20'],
  ['hours', [0, 30_000], ['0:00:00', '2:00:00', '8:00:00'], '7:33:20'],
  ['days', [0, 600_000], ['0:00:00', '24:00:00', '144:00:00'], '138:53:20']
])('an axis of time has ticks at round %s', async (_, [x0 = 0, x1 = 0], some, never) => {
  const texts = {
    ...axisTexts('time', 'step', { isUtc: false }, t),
    yTitle: '',
    colorTitle: '',
    yScale: 'linear'
  };
  const recipe = lineRecipe({ lines: [], colors: [], bad: [], x: [x0, x1], ys: [[0, 1]], texts }, null);
  const node = document.createElement('div');
  document.body.append(node);
  const chart = await Chart.mount(node, recipe, { theme: LIGHT_THEME, renderer: 'svg' });
  const labels = [...node.querySelectorAll('.role-axis-label text')].map(each => each.textContent);
  chart.dispose();
  expect(labels).toEqual(expect.arrayContaining(some));
  // A tenth of a span that is no round number.
  expect(labels).not.toContain(never);
  const times = labels.filter(each => each?.includes(':'));
  expect(times.length).toBeGreaterThan(3);
  expect(times.length).toBeLessThan(13);
});

it('a place of it is told as its ticks are', () => {
  expect(placeWords('time', 'step', t)(4523)).toBe('1:15:23 after the start');
});
