import { nullTranslator } from '@jupyterlab/translation';
import { statisticsText } from '../statistics-text';
import { HELLO } from './memory-run';
import { setUp } from './memory-panel';
import { shown, until } from './shown-panel';

const trans = nullTranslator.load('megalens');

describe('statistics in the panel', () => {
  it('says what is logged and how often', () => {
    expect(statisticsText({ param: 1, grad: 1, activation: 100, residual: 100, dgrad: 1000 }, trans)).toBe(
      'parameters, gradients every step; activations, residual stream every 100 steps; activation gradients every 1\u2009000 steps'
    );
    expect(statisticsText(undefined, trans)).toBe('');
    expect(statisticsText({}, trans)).toBe('');
  });

  it('opens the explorer at its overview, and asks nobody to tick a tensor where statistics are logged', async () => {
    const hello = { ...HELLO, config: { flags: {} }, statistics: { grad: 1 } };
    const { model, panel, find, host } = await shown(hello);
    await until(() => find('.jp-MegalensFigures-statistics') !== null);
    expect(find('.jp-MegalensFigures-statistics')!.textContent).toBe('statistics gradients every step');
    expect(model.runNotice).toBeNull();
    const button = find('[data-view="moments"]')!;
    expect(button.title).toContain('Click for a tab');
    button.click();
    expect(host.openView).toHaveBeenCalledWith('run-1', { view: 'moments', kind: 'overview' });
    host.openViews.mockReturnValueOnce([{ view: 'moments', kind: 'table' }]);
    button.click();
    expect(host.openView).toHaveBeenLastCalledWith('run-1', { view: 'moments' });
    expect(model.reportViews()).toContainEqual({ view: 'moments' });
    panel.dispose();
  });

  it('says how statistics come to be where there are none', async () => {
    const { panel, find } = await shown();
    await until(() => find('[data-view="moments"]') !== null);
    expect(find('[data-view="moments"]')!.title).toContain('megalens.log_statistics(model, optimizer)');
    expect(find('.jp-MegalensFigures-statistics')).toBeNull();
    panel.dispose();
  });

  it('puts the explorer’s call into copied code', async () => {
    const { model, host } = setUp();
    await model.ready();
    host.openViews.mockReturnValue([
      { view: 'moments', stat: 'residual', statistic: 'kurtosis', by: ['layer'], where: { layer: '0-3' } }
    ]);
    expect(model.code()).toContain(
      'run.explore(stat="residual", statistic="kurtosis", where={"layer": "0-3"})\n'
    );
    model.dispose();
  });
});
