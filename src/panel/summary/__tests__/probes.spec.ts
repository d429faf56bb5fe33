import { shown, until } from '../../shell/__tests__/shown-panel';

describe('the probes of a live run', () => {
  it('that did not fire are named with the reason, and code that is compiled again is counted', async () => {
    const { panel, find, source } = await shown();
    const text = (): string => find('.jp-MegalensFigures')?.textContent ?? '';
    const tell = (status: object): void => {
      source.status = { ...source.status!, ...status };
      source.changed.emit({ kind: 'status' });
    };
    await until(() => text() !== '');
    expect(text()).not.toContain('compiled again');
    const missing = ['MLP1 output, layer 0', 'MLP1 output, layer 1'];
    tell({ probes: { fired: 2, expected: 4, missing }, compiled: { times: 2, again: 0 } });
    await until(() => text().includes('Did not fire: MLP1 output, layer 0, MLP1 output, layer 1'));
    expect(text()).toContain('compiled again 0');
    const reasons = missing.map((name, at) => ({ reason: `reason ${at}`, missing: [name] }));
    tell({ probes: { fired: 2, expected: 4, missing, reasons }, compiled: { times: 3, again: 1 } });
    await until(() => text().includes('Did not fire: MLP1 output, layer 1 (reason 1)'));
    expect(text()).toContain('Did not fire: MLP1 output, layer 0 (reason 0)');
    expect(text()).toContain('compiled again 1');
    panel.dispose();
  });
});
