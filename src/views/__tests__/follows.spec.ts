import { MemoryRun } from '../../store/__tests__/memory-run';
import { TensorStore } from '../../store/tensor-store';
import { tierWords } from '../shared/describe';
import { untranslated } from '../shared/translate';
import { settled, showView, update } from './page';

const follow = async (run: MemoryRun, layers: string): Promise<HTMLElement> =>
  (await showView(run, { view: 'heatmap', flag: 'MLP1_mat_mul', layers })).node;

/** A run that traced layers 0 and 1, and from step 3 on only layer 1. */
function narrowed(): MemoryRun {
  const run = new MemoryRun();
  const values = new Float32Array(6).fill(1);
  run.add(...[1, 2].flatMap(step => [0, 1].map(layer => ({ step, layer, values }))));
  run.add(...[3, 4].map(step => ({ step, layer: 1, values })));
  const { hello } = run;
  const setting = hello?.config.flags['MLP1_mat_mul'] ?? { compressor: { name: 'Tile' } };
  run.hello = hello && {
    ...hello,
    config: { ...hello.config, flags: { MLP1_mat_mul: { ...setting, layers: '1' } } }
  };
  return run;
}

const note = (node: HTMLElement): string => node.querySelector('.jp-MegalensNote span')?.textContent ?? '';

it('says that a layer it follows is not traced any more, since when, and offers one that is', async () => {
  const node = await follow(narrowed(), '0');
  expect(node.querySelector('h2')?.textContent).toMatch(/step 2$/);
  expect(note(node)).toBe('Layer 0 of MLP1 output: not traced any more since step 2.');
  const offer = node.querySelector<HTMLButtonElement>('.jp-MegalensNote button');
  expect(offer?.textContent).toBe('Show layer 1');
  offer?.click();
  await settled();
  expect(node.querySelector('h2')?.textContent).toMatch(/step 4$/);
  expect(note(node)).toBe('');
});

it('says nothing of it at a chosen step, where all layers are traced, and after the end', async () => {
  const run = narrowed();
  const node = await follow(run, '1');
  expect(note(node)).toBe('');
  await update({ layers: '0', step: 1 });
  expect(note(node)).toBe('');
  await update({ step: null });
  expect(note(node)).not.toBe('');
  run.connect({ kind: 'recorded' });
  await settled();
  expect(note(node)).toBe('');
});

it('names no step up to which tensors are thinned where none is', () => {
  const run = new MemoryRun();
  run.add({ step: 7, layer: 0, values: new Float32Array(6) });
  const store = new TensorStore(1 << 20);
  run.rows.forEach(row => store.add(row));
  const result = store.query({ flag: 'MLP1_mat_mul' });
  const { kept, lackingTo = null } = result;
  expect(lackingTo).toBeNull();
  expect(kept?.thinnedTo).toBeNull();
  const words = kept && tierWords({ ...kept, first: 7, evictedRows: 0 }, untranslated);
  expect(words?.join(' ')).toMatch(/^Every tensor since step 7 is kept/);
});
