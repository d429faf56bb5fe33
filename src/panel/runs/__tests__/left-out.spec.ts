import { shown, until } from '../../shell/__tests__/shown-panel';

describe('run folders that cannot be read', () => {
  it('are named below the list, folded, for as long as they cannot', async () => {
    const { model, runs, panel, find } = await shown();
    const box = () => find('.jp-MegalensRuns-leftOut') as HTMLDetailsElement | null;
    expect(box()).toBeNull();
    const sentence = 'megalens-runs/closed cannot be looked into: Permission denied.';
    runs.warnings = [sentence];
    await model.runs.refresh();
    await until(() => box() !== null);
    expect(box()!.open).toBe(false);
    expect(box()!.querySelector('summary')!.textContent).toBe('Not all run folders could be read');
    expect([...box()!.querySelectorAll('p')].map(each => each.textContent)).toEqual([sentence]);
    expect(panel.node.querySelectorAll('.jp-MegalensRun')).toHaveLength(2);
    runs.warnings = [];
    await model.runs.refresh();
    await until(() => box() === null);
    panel.dispose();
  });
});
