import { formatBytes } from '../../../charts';
import { shown, until } from '../../shell/__tests__/shown-panel';

it('warns in red before a flood, says for how long the recording lasts, and asks', async () => {
  const { model, panel, find, source } = await shown();
  const tell = (step: number, time: number): void => {
    const recording = { state: 'on', bytes: 0, limit_bytes: 1e9 } as const;
    source.status = { type: 'status', state: 'training', step, time, recording };
    source.changed.emit({ kind: 'status' });
  };
  tell(100, 1000);
  tell(110, 1020);
  const trace = model.open!.trace;
  trace.toggle('MLP1_mat_mul', true);
  const button = () => find('.jp-MegalensApply .jp-mod-accept');
  await until(() => button()?.getAttribute('aria-disabled') === 'false');
  expect(button()?.textContent).toBe('Apply');
  expect(find('.jp-MegalensApplyBar [role=alert]')).toBeNull();
  trace.change('MLP1_mat_mul', { compressor: { name: 'NoOp' }, samples: 512 });
  await until(() => button()?.textContent === 'Apply anyway');
  const { flood, estimate } = trace;
  expect(estimate.bytes).toBeGreaterThan(64e6);
  const warning = find('.jp-MegalensApplyBar .jp-MegalensField-fault[role=alert]')?.textContent ?? '';
  expect(warning).toContain(`With one micro-batch a step sends ${formatBytes(estimate.bytes)}.`);
  // A step takes 2 s.
  expect(warning).toContain(`holds about ${flood.held} such steps, or ${2 * flood.held!}\u00a0s.`);
  panel.dispose();
});

it('says what a micro-batch sends until the run, or what a step sends, tells how many it has', async () => {
  const { model, panel, find, source } = await shown();
  const size = (): string | undefined => find('.jp-MegalensApply-size')?.textContent ?? undefined;
  model.open!.trace.toggle('MLP1_mat_mul', true);
  await until(() => size()?.endsWith('/micro-batch') ?? false);
  const one = model.open!.trace.estimate.bytes;
  source.status = { ...source.status!, micro_batches: 4 };
  source.changed.emit({ kind: 'status' });
  await until(() => size()?.endsWith('/step') ?? false);
  expect(size()).toBe(`≈ ${formatBytes(4 * one)}/step`);
  await model.open!.trace.submit();
  const step = source.status.step + 1000;
  source.status = { ...source.status!, step, bytes_per_step: 8e6 };
  source.changed.emit({ kind: 'status' });
  await until(() => /^≈ 8\sMB\/step$/.test(size() ?? ''));
  panel.dispose();
});
