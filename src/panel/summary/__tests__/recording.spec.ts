import { shown, until } from '../../shell/__tests__/shown-panel';

const term = (find: (selector: string) => HTMLElement | null): HTMLElement | undefined =>
  [...(find('.jp-MegalensFigures')?.querySelectorAll<HTMLElement>('.jp-MegalensTerm') ?? [])].find(each =>
    each.textContent?.startsWith('recording')
  );

describe('the recording of a live run', () => {
  it('is shown with what it takes on the disk, and with what it may', async () => {
    const { panel, find, source } = await shown();
    const tell = (recording: object): void => {
      source.status = { ...source.status!, recording: { state: 'on', ...recording } };
      source.changed.emit({ kind: 'status' });
    };
    tell({ bytes: 3.04e9 });
    await until(() => term(find)?.textContent === 'recording 3.04 GB');
    expect(term(find)?.title).toContain('not bounded');
    tell({ bytes: 1.9e9, limit_bytes: 2e9, message: 'Steps before 958 are given up.' });
    await until(() => term(find)?.textContent === 'recording 1.9 GB of 2 GB');
    expect(term(find)?.title).toBe('Steps before 958 are given up.');
    panel.dispose();
  });
});
