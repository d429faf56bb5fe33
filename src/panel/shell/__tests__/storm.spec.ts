import { JOB } from './memory-job';
import { shown, until } from './shown-panel';

it('a viewer that changes the settings a thousand times costs a few drawings, and no draft', async () => {
  const { model, panel, find, source } = await shown(JOB);
  await until(() => find('.jp-MegalensFlag') !== null);
  const { trace } = model.open!;
  trace.toggle('QKV_mat_mul', true);
  trace.change('QKV_mat_mul', { layers: '2-3' });
  let told = 0;
  model.changed.connect(() => told++);
  for (let i = 1; i <= 1000; i++) {
    const message = source.configured(
      { flags: { MLP1_mat_mul: { compressor: { name: 'Tile' }, every: i } } },
      `kernel-${i}`
    );
    const by = { name: 'kernel', version: '1', user: 'Ada' };
    source.changed.emit({ kind: 'configured', message: { ...message, applied: false, by } });
    source.changed.emit({ kind: 'configured', message: { ...message, by } });
  }
  // The first is told at once, the last a moment later.
  expect(told).toBeLessThan(10);
  await until(() => find('.jp-mod-trace .jp-MegalensNotice')?.textContent?.includes('1\u202f000') === true);
  expect(find('.jp-mod-trace .jp-MegalensNotice p')?.textContent).toContain(
    'the last of 1\u202f000 changes at step 1\u202f243: MLP1 output Tile, every 1000 steps'
  );
  expect(told).toBeLessThan(20);
  expect(trace.config.flags['MLP1_mat_mul']?.every).toBe(1000);
  expect(trace.rows[1]?.setting).toMatchObject({ layers: '2-3' });
  expect(trace.dirty).toBe(true);
  panel.dispose();
});
