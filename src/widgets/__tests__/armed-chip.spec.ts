import { fullViewOptions } from '../../protocol';
import type { Config, Hello } from '../../protocol/messages.generated';
import { ViewHost } from '../view-host';
import { MemoryRuns, plainMount, settled } from './fake-view';

const PERTURB: Config['perturb'] = {
  sites: { calculation: { kind: { name: 'noise1', params: { coefficient: 0.1 } }, layers: '2-3' } },
  until: 1340
};

/** Only what the chip reads of it. */
const helloWith = (perturb: Config['perturb']): Hello =>
  ({ config: { flags: {}, ...(perturb && { perturb }) }, sites: [] }) as unknown as Hello;

it('says over a view that the training is perturbed, from when it is until it is not', async () => {
  const runs = new MemoryRuns();
  const host = new ViewHost({
    runs,
    run: { id: 'r1', name: 'gpt-demo', folder: null },
    options: fullViewOptions({ view: 'scalars' }),
    mount: plainMount()
  });
  const source = runs.source!;
  source.hello = helloWith(undefined);
  await settled();
  const chip = host.node.querySelector<HTMLElement>('.jp-MegalensArmedChip')!;
  expect(chip.hidden).toBe(true);

  source.hello = helloWith(PERTURB);
  source.status = { type: 'status', state: 'training', step: 1300 };
  source.changed.emit({ kind: 'hello' });
  expect(chip.hidden).toBe(false);
  expect(chip.textContent).toBe(
    'Perturbed until step 1\u202f340: calculation: noise1, coefficient 0.1, layers 2-3'
  );

  source.status = { type: 'status', state: 'training', step: 1341 };
  source.changed.emit({ kind: 'status' });
  expect(chip.hidden).toBe(true);

  source.status = { type: 'status', state: 'training', step: 1300 };
  source.connect({ kind: 'recorded' });
  expect(chip.hidden).toBe(true);
  host.dispose();
  source.connect({ kind: 'live' });
  expect(chip.hidden).toBe(true);
});
