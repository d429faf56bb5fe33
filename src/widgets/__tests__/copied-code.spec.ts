import { MemoryRun } from '../../store/__tests__/memory-run';
import { mountLazily } from '../mime';
import { ENGLISH } from '../runs';

it('the code that a cell’s view copies opens its own run, whatever the notebook calls run', async () => {
  const run = new MemoryRun();
  const node = document.createElement('div');
  const view = await mountLazily(node, run, { view: 'scalars' } as never, ENGLISH, {
    list: () => Promise.resolve([]),
    acquire: () => Promise.reject(new Error('There is one run.'))
  });
  expect((view as unknown as { code(): string }).code()).toBe(
    `import megalens\n\nmegalens.connect("${run.id}").scalars_view()`
  );
  view.dispose();
});
