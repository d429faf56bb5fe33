import { parseName } from '../../protocol/tensor-name';
import { NameFacts } from '../statistics/name-facts';
import { MomentsPage } from './moments-page';

const OF_INPUT = 'layers.1.fc1/input0/activation:float8_e4m3fn';
const OF_WEIGHT = 'layers.0.fc1.weight/param:mxfp8';

let page: MomentsPage;
beforeEach(() => (page = new MomentsPage()));
afterEach(() => page.close());

describe('what casts lose', () => {
  it('is shown as a share, the mean, once it is chosen, and groups by what was cast to what', async () => {
    page.run.log({ step: 1, name: 'layers.0.fc1.weight' });
    // Of 1,000 and 3,000 values: half of all.
    page.run.log({ step: 1, name: OF_INPUT, stat: 'underflow', mean: 0.2, count: 1000 });
    page.run.log({ step: 1, name: OF_INPUT, stat: 'underflow', mean: 0.6, count: 3000, rank: 1 });
    page.run.log({ step: 1, name: OF_WEIGHT, stat: 'underflow', mean: 0.1, count: 1000 });
    const view = await page.show({ kind: 'table', by: ['kind'] });
    page.change(page.control<HTMLSelectElement>('stat', 'select'), 'underflow');
    await view.settled();
    expect(page.control<HTMLSelectElement>('statistic', 'select').value).toBe('mean');
    const rows = [...document.querySelectorAll('tbody tr')].map(row => row.textContent ?? '');
    expect(rows).toHaveLength(2);
    expect(rows[0]).toContain('activation:float8_e4m3fn');
    expect(rows[0]).toContain('0.5');
    expect(rows[1]).toContain('param:mxfp8');
  });

  it('is offered where nothing else was logged', async () => {
    page.run.log({ step: 1, name: OF_INPUT, stat: 'overflow', mean: 0.25 });
    const view = await page.show();
    await page.click('Show overflow of casts');
    await view.settled();
    expect(view.options).toMatchObject({ stat: 'overflow', statistic: 'mean' });
  });

  it('offers filters of tensors with and without a role', () => {
    const facts = new NameFacts().of([OF_INPUT, OF_WEIGHT], 'overflow');
    expect(facts.kind).toEqual(['activation:float8_e4m3fn', 'param:mxfp8']);
    expect(facts.layers).toEqual([0, 1]);
    expect(parseName(OF_INPUT).role).toBe('input');
  });
});
