import { Widget } from '@lumino/widgets';
import { LIVE, OLD, setUp } from '../../shell/__tests__/memory-panel';
import { until } from '../../shell/__tests__/shown-panel';
import { RunsTableWidget } from '../runs-table-widget';

const BERT = {
  ...OLD,
  id: 'run-b',
  name: 'bert',
  started: 20,
  bytes: 3e9,
  tags: ['tp'],
  state: 'gone' as const
};

async function shown() {
  const set = setUp();
  set.runs.entries = [LIVE, { ...OLD, bytes: 1e6 }, BERT];
  const settings = (layers: number) => new Map([['model.layers', layers]]);
  set.runs.summed.set('run-0', { loss: { name: 'loss', step: 40, value: 2.5 }, settings: settings(4) });
  set.runs.summed.set('run-b', { loss: { name: 'loss', step: 40, value: 1.25 }, settings: settings(8) });
  const widget = new RunsTableWidget(set.model, set.runs);
  Widget.attach(widget, document.body);
  await until(() => widget.node.querySelector('[aria-sort]') !== null && cells(widget, 5).includes('1.25'));
  return { ...set, widget };
}

/** The texts of a column, from top to bottom. */
const cells = ({ node }: Widget, at: number): (string | null)[] =>
  [...node.querySelectorAll('tbody tr')].map(row => row.children[at]?.textContent ?? null);
const header = ({ node }: Widget, title: string): HTMLElement =>
  [...node.querySelectorAll<HTMLElement>('th button')].find(each =>
    each.textContent?.startsWith(title)
  ) as HTMLElement;
const box = ({ node }: Widget, run: string): HTMLInputElement =>
  node.querySelector(`tr[data-run="${run}"] input`) as HTMLInputElement;

describe('the table of runs', () => {
  it('shows newest first what each run is, with the settings in which they differ, and sorts by a click', async () => {
    const { widget } = await shown();
    expect(cells(widget, 1)).toEqual(['gpt-demo', 'tp2', 'bert']);
    expect(cells(widget, 2).map(each => each?.slice(2))).toEqual([
      'live',
      'recorded',
      'stopped unexpectedly'
    ]);
    expect(cells(widget, 5).slice(1)).toEqual(['2.5', '1.25']);
    expect(header(widget, 'layers').title).toBe('model.layers');
    expect(cells(widget, 7)).toEqual(['–', '4', '8']);
    expect(widget.node.querySelector('.jp-MegalensRunsTable-count')?.textContent).toMatch(
      /^3 runs, 3\s?GB on the disk$/
    );
    header(widget, 'Last loss').click();
    await until(() => cells(widget, 1)[0] === 'bert');
    expect(header(widget, 'Last loss').closest('th')?.getAttribute('aria-sort')).toBe('ascending');
    widget.dispose();
  });

  it('marks several, compares them, and deletes those that are no more live', async () => {
    const { widget, model, opened, host } = await shown();
    box(widget, 'run-1').click();
    box(widget, 'run-b').click();
    await until(() => widget.node.querySelector('.jp-MegalensCompare') !== null);
    expect(model.runs.marked).toEqual(['run-1', 'run-b']);
    const button = (text: string) =>
      [...widget.node.querySelectorAll('button')].find(each => each.textContent === text) as HTMLElement;
    button('Delete the recording…').click();
    await until(() => cells(widget, 1).length === 2);
    expect(host.askDelete).toHaveBeenCalledWith([BERT]);
    expect(model.runs.marked).toEqual(['run-1']);
    box(widget, 'run-0').click();
    await until(() => button('Statistics') !== undefined);
    button('Statistics').click();
    await new Promise(resolve => setTimeout(resolve));
    expect(opened[0]?.[1]).toMatchObject({ view: 'statistics', compare: 'overlay' });
    widget.dispose();
  });

  it('says that no run matches, and writes notes', async () => {
    const { widget, model } = await shown();
    const add = widget.node.querySelector('[aria-label^="Notes and tags of bert"]') as HTMLElement;
    add.click();
    await until(() => cells(widget, 9).includes('warmup 200') || cells(widget, 10).includes('warmup 200'));
    expect(model.runs.entries.find(({ id }) => id === 'run-b')?.tags).toEqual(['baseline']);
    const input = widget.node.querySelector('input[type=search]') as HTMLInputElement;
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')?.set?.call(input, 'nothing-like-it');
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await until(() => widget.node.textContent?.includes('No run matches') === true);
    widget.dispose();
  });
});
