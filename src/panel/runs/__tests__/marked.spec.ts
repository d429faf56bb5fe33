import { nullTranslator } from '@jupyterlab/translation';
import { LIVE, OLD, setUp } from '../../shell/__tests__/memory-panel';
import { shown, until } from '../../shell/__tests__/shown-panel';
import { tagsOf } from '../run-dialogs';
import { runMark } from '../run-mark';

const trans = nullTranslator.load('megalens');
const THIRD = { ...OLD, id: 'run-x', name: 'tp2', started: 20 };

describe('runs that are marked', () => {
  it('are those that are clicked with Ctrl, the chosen one among them, and are compared in one click', async () => {
    const { model, runs, panel, find, opened } = await shown();
    runs.entries = [LIVE, OLD, THIRD];
    await model.runs.refresh();
    const row = (id: string) => find(`[data-run="${id}"]`) as HTMLElement;
    const click = (id: string, ctrlKey: boolean) =>
      row(id).dispatchEvent(new MouseEvent('click', { ctrlKey, bubbles: true }));
    await until(() => row('run-x') !== null);
    expect(find('.jp-MegalensCompare')).toBeNull();
    click('run-x', true);
    await until(() => find('.jp-MegalensCompare') !== null);
    expect(model.runs.marked).toEqual(['run-1', 'run-x']);
    expect(model.runs.chosenId).toBe('run-1');
    click('run-0', true);
    expect(model.runs.marked).toEqual(['run-1', 'run-0', 'run-x']);
    click('run-x', true);
    await until(() => row('run-x').getAttribute('aria-selected') === 'false');
    const select = find('.jp-MegalensCompare select') as HTMLSelectElement;
    select.value = 'ratio';
    select.dispatchEvent(new Event('change', { bubbles: true }));
    const statistics = [...panel.node.querySelectorAll<HTMLElement>('.jp-MegalensCompare button')].find(
      each => each.textContent === 'Statistics'
    );
    statistics!.click();
    await new Promise(resolve => setTimeout(resolve));
    expect(opened[0]).toEqual([
      'run-1',
      expect.objectContaining({ view: 'statistics', runs: ['run-0'], compare: 'ratio' })
    ]);
    // A plain click chooses one again.
    click('run-0', false);
    await until(() => find('.jp-MegalensCompare') === null);
    expect(model.runs.marked).toEqual([]);
    panel.dispose();
  });

  it('are compared with the first of them, which is chosen then', async () => {
    const { model, opened } = setUp();
    await model.ready();
    await model.compare('statistics', 'difference', ['run-0', 'run-1']);
    expect(model.runs.chosenId).toBe('run-0');
    expect(opened[0]).toEqual(['run-0', expect.objectContaining({ runs: ['run-1'], compare: 'difference' })]);
    model.dispose();
  });
});

describe('notes, tags and deleting', () => {
  it('are asked for and written', async () => {
    const { model, host } = setUp();
    await model.ready();
    await model.actions.annotate(OLD);
    expect(model.runs.entries[1]).toMatchObject({ notes: 'warmup 200', tags: ['baseline'] });
    host.askNotes.mockResolvedValueOnce(null);
    await model.actions.annotate(LIVE);
    expect(model.runs.entries[0]?.notes).toBeUndefined();
    expect(tagsOf(' a, b,,a ,c d')).toEqual(['a', 'b', 'c d']);
    model.dispose();
  });

  it('deletes what was confirmed, says what stays, and passes a refusal on', async () => {
    const { model, runs, host } = setUp();
    await model.ready();
    host.askDelete.mockResolvedValueOnce(false);
    await model.actions.remove([OLD]);
    expect(runs.entries).toHaveLength(2);
    runs.shared.add('run-0');
    model.runs.choose('run-0');
    await model.actions.remove([LIVE, OLD]);
    expect(model.runs.entries.map(({ id }) => id)).toEqual(['run-1']);
    expect(host.tell).toHaveBeenCalledWith(
      'gpt-demo could not be deleted',
      expect.objectContaining({ message: 'The hub of this run is still there.' })
    );
    expect(host.warn).toHaveBeenCalledWith(expect.stringContaining('stay: tp2'));
    model.dispose();
  });
});

describe('the mark of a run', () => {
  it('says that a run has finished without anybody choosing it', () => {
    expect(runMark(LIVE, null, trans).word).toBe('live');
    expect(runMark({ ...LIVE, ended: 120, stopped: true }, null, trans).word).toBe('stopped');
    expect(runMark({ ...LIVE, ended: 120 }, null, trans)).toMatchObject({
      kind: 'recorded',
      word: 'finished'
    });
  });

  it('says in full that a run stopped unexpectedly', () => {
    expect(runMark({ ...OLD, state: 'gone' }, null, trans)).toMatchObject({
      kind: 'gone',
      word: 'stopped',
      words: 'stopped unexpectedly'
    });
  });

  it('keeps the ranks of a job together below the newest, and names each', async () => {
    const { model, runs, panel } = await shown();
    const rank = (at: number, started: number) =>
      ({ ...OLD, id: `rank-${at}`, name: `big-rank${at}`, job: 'big', started }) as const;
    runs.entries = [rank(0, 90), THIRD, rank(1, 10), LIVE];
    await model.runs.refresh();
    const rows = () => [...panel.node.querySelectorAll<HTMLElement>('[data-run]')];
    await until(() => rows().length === 4);
    expect(rows().map(row => row.dataset['run'])).toEqual([LIVE.id, 'rank-0', 'rank-1', 'run-x']);
    expect(rows().map(row => row.classList.contains('jp-mod-follows'))).toEqual([false, false, true, false]);
    expect(rows()[2]?.querySelector('.jp-MegalensRun-name')?.textContent).toBe('big-rank1');
    panel.dispose();
  });

  it('tells runs of one name apart in the list', async () => {
    const { model, runs, panel } = await shown();
    runs.entries = [LIVE, { ...OLD, apart: '9 Sept, 01:46' }];
    await model.runs.refresh();
    await until(() => panel.node.querySelector('.jp-MegalensRun-apart') !== null);
    expect(panel.node.querySelectorAll('.jp-MegalensRun-apart')).toHaveLength(1);
    model.runs.choose('run-0');
    await until(() => panel.node.querySelector('.jp-mod-summary h3')?.textContent === 'tp2 · 9 Sept, 01:46');
    panel.dispose();
  });
});
