import { LIVE, OLD } from './memory-panel';
import { shown, until } from './shown-panel';

describe('the keyboard’s place in the panel', () => {
  it('stays at a run while the list is refreshed, grows and is sorted anew', async () => {
    const { model, runs, panel, find } = await shown();
    await until(() => find('[data-run="run-1"]') !== null);
    const option = find('[data-run="run-1"]')!;
    option.focus();
    runs.entries = [{ ...LIVE, name: 'renamed' }, OLD];
    await model.runs.refresh();
    await until(() => option.textContent!.includes('renamed'));
    expect(document.activeElement).toBe(option);
    runs.entries = [{ ...OLD, id: 'run-2', name: 'new', started: 200 }, ...runs.entries];
    await model.runs.refresh();
    await until(() => find('[data-run="run-2"]') !== null);
    expect(document.activeElement).toBe(option);
    runs.entries = [OLD, LIVE];
    runs.entries = runs.entries.map(entry => ({ ...entry, started: 300 - entry.started }));
    await model.runs.refresh();
    await until(() => panel.node.querySelectorAll('[data-run]').length === 2);
    expect(document.activeElement).toBe(option);
    panel.dispose();
  });

  it('stays on Apply while the run is asked and after it answered', async () => {
    const { model, panel, find, source } = await shown();
    model.open!.trace.toggle('MLP1_mat_mul', true);
    const apply = () => find('.jp-MegalensApply .jp-mod-accept');
    await until(() => apply()?.getAttribute('aria-disabled') === 'false');
    apply()!.focus();
    apply()!.click();
    await until(() => apply()?.getAttribute('aria-disabled') === 'true');
    expect(document.activeElement).toBe(apply());
    // Pressing it again asks nothing.
    apply()!.click();
    expect(source.patches).toHaveLength(1);
    panel.dispose();
  });

  it('goes to the section’s heading when the button that was pressed goes away', async () => {
    const { panel, find, source } = await shown();
    await until(() => find('.jp-mod-summary .jp-MegalensNotice button') !== null);
    find('.jp-mod-summary .jp-MegalensNotice button')!.focus();
    source.hello = {
      ...source.hello!,
      config: { flags: { MLP1_mat_mul: { compressor: { name: 'Tile', params: { tiles: 96 } } } } }
    };
    source.changed.emit({ kind: 'hello' });
    await until(() => find('.jp-mod-summary .jp-MegalensNotice') === null);
    expect(document.activeElement).toBe(find('.jp-mod-summary .jp-MegalensSection-toggle'));
    panel.dispose();
  });

  it('goes to the first heading when the whole section goes away', async () => {
    const { model, panel, find } = await shown();
    await until(() => find('.jp-mod-views .jp-MegalensButton') !== null);
    find('.jp-mod-views .jp-MegalensButton')!.focus();
    model.runs.choose(null);
    await until(() => find('.jp-mod-views') === null);
    expect(document.activeElement).toBe(find('.jp-mod-runs .jp-MegalensSection-toggle'));
    panel.dispose();
  });

  it('is not taken from somewhere else', async () => {
    const { model, panel, find } = await shown();
    await until(() => find('.jp-mod-views .jp-MegalensButton') !== null);
    const elsewhere = document.body.appendChild(document.createElement('input'));
    elsewhere.focus();
    model.runs.choose(null);
    await until(() => find('.jp-mod-views') === null);
    expect(document.activeElement).toBe(elsewhere);
    elsewhere.remove();
    panel.dispose();
  });
});
