import { nullTranslator } from '@jupyterlab/translation';
import { runCode } from '../../shell/panel-code';
import { statisticsTexts } from '../summary-section';
import { HELLO } from '../../shell/__tests__/controlled-run';
import { setUp } from '../../shell/__tests__/memory-panel';
import { shown, until } from '../../shell/__tests__/shown-panel';

const trans = nullTranslator.load('megalens');

describe('statistics in the panel', () => {
  it('says what is logged and how often', () => {
    const logged = { param: 1, grad: 1, activation: 100, residual: 100, dgrad: 1000 };
    expect(statisticsTexts(logged, trans)).toEqual([
      'parameters, gradients every step',
      'activations, residual stream every 100 steps',
      'activation gradients every 1\u202f000 steps'
    ]);
    expect(statisticsTexts(undefined, trans)).toEqual([]);
  });

  it('are one line of the table, which opens to how often each is logged', async () => {
    const { panel, find } = await shown({ ...HELLO, statistics: { grad: 1, param: 10, dgrad: 50 } });
    await until(() => find('.jp-MegalensFigures-statistics') !== null);
    const fold = find('.jp-MegalensFigures-statistics') as HTMLDetailsElement;
    expect(fold.open).toBe(false);
    expect(fold.querySelector('summary')?.textContent).toBe('statistics 3 kinds');
    expect([...fold.querySelectorAll('p')].map(each => each.textContent)).toEqual([
      'gradients every step',
      'parameters every 10 steps',
      'activation gradients every 50 steps'
    ]);
    panel.dispose();
  });

  it('opens the explorer at its overview, and asks nobody to tick a tensor where statistics are logged', async () => {
    const hello = { ...HELLO, config: { flags: {} }, statistics: { grad: 1 } };
    const { model, panel, find, host } = await shown(hello);
    await until(() => find('.jp-MegalensFigures-statistics') !== null);
    expect(find('.jp-MegalensFigures-statistics')!.textContent).toBe('statistics gradients every step');
    expect(model.runNotice).toBeNull();
    const button = find('[data-view="statistics"]')!;
    expect(button.title).toContain('Click for a tab');
    button.click();
    expect(host.openView).toHaveBeenCalledWith('run-1', { view: 'statistics', kind: 'overview' });
    host.openViews.mockReturnValueOnce([{ view: 'statistics', kind: 'table' }]);
    button.click();
    expect(host.openView).toHaveBeenLastCalledWith('run-1', { view: 'statistics' });
    expect(model.reportViews()).toContainEqual({ view: 'statistics' });
    panel.dispose();
  });

  it('names the first tensor whose statistics counted what is not finite, and shows it', async () => {
    const { panel, find, host, source } = await shown({ ...HELLO, statistics: { grad: 1 } });
    const first = { step: 1019, stat: 'grad', name: 'blocks.1.mlp.fc1.weight' };
    source.status = {
      type: 'status',
      state: 'training',
      step: 1240,
      nonfinite: { count: 0, moments: { count: 9, first } }
    };
    source.changed.emit({ kind: 'status' });
    await until(() => find('.jp-MegalensNonFinite') !== null);
    const button = find('.jp-MegalensNonFinite')!;
    expect(button.textContent).toBe(
      'non-finite in statistics 9, first at step 1\u202f019, blocks.1.mlp.fc1.weight'
    );
    expect(button.parentElement?.textContent).not.toContain('non-finite 0');
    button.click();
    expect(host.openView).toHaveBeenCalledWith('run-1', {
      view: 'statistics',
      kind: 'tensors',
      stat: 'grad',
      where: { name: '^blocks\\.1\\.mlp\\.fc1\\.weight$' },
      step: 1019,
      steps: null
    });
    panel.dispose();
  });

  it('says how statistics come to be where there are none', async () => {
    const { panel, find } = await shown();
    await until(() => find('[data-view="statistics"]') !== null);
    expect(find('[data-view="statistics"]')!.title).toContain(
      'megalens.log_statistics(model, optimizer, param=1, grad=1)'
    );
    expect(find('.jp-MegalensFigures-statistics')).toBeNull();
    panel.dispose();
  });

  it('opens files of another logger, marks them and copies the line that opens them', async () => {
    const { model, panel, find, host } = await shown();
    await model.actions.openStatistics();
    const entry = '[data-run="statistics-1"]';
    await until(() => find(`${entry}[aria-selected="true"]`) !== null);
    expect(find(`${entry} .jp-MegalensRun-mark`)!.textContent).toBe('Σ');
    expect(find(`${entry} .jp-MegalensRun-word`)!.textContent).toBe('statistics');
    await until(() => find('[data-view="heatmap"]')?.title === 'These files hold statistics only');
    expect(find('[data-view="statistics"]')!.title).toContain('Click for a tab');
    expect(panel.node.textContent).toContain('Statistics from files.');
    expect(find('.jp-MegalensFigures')).toBeNull();
    expect(runCode(model.runs.chosen!)).toBe('run = megalens.open("runs/my-run")');
    expect(model.reportViews()).toEqual([{ view: 'overview' }, { view: 'statistics' }]);
    host.askStatistics.mockResolvedValueOnce('nothing');
    await model.actions.openStatistics();
    expect(host.tell).toHaveBeenCalledWith(
      'The statistics could not be opened',
      expect.objectContaining({ message: 'There are no raw-moment statistics in nothing.' })
    );
    host.askStatistics.mockResolvedValueOnce('half');
    await model.actions.openStatistics();
    expect(host.tell).toHaveBeenLastCalledWith(
      'Some folders were left out',
      'half/b cannot be looked into: Permission denied.'
    );
    host.askStatistics.mockResolvedValueOnce(null);
    await model.actions.openStatistics();
    expect(host.tell).toHaveBeenCalledTimes(2);
    panel.dispose();
  });

  it('puts the explorer’s call into copied code', async () => {
    const { model, host } = setUp();
    await model.ready();
    host.openViews.mockReturnValue([
      { view: 'statistics', stat: 'residual', statistic: 'kurtosis', by: ['layer'], where: { layer: '0-3' } }
    ]);
    expect(model.code()).toContain(
      'run.statistics(stat="residual", statistic="kurtosis", where={"layer": "0-3"})\n'
    );
    model.dispose();
  });
});
