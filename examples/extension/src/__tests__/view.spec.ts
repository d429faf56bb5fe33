import type { ViewOptions } from '../../../../src/protocol/views.generated';
import { ViewRegistry } from '../../../../src/plugins/view-registry';
import { mountView, toCode } from '../../../../src/views';
import { readView } from '../../../../src/views/still';
import { MemoryRun } from '../../../../src/store/__tests__/memory-run';
import plugin from '../index';

// The test also loads and transforms Vega.
jest.setTimeout(30_000);

const options = { view: 'weight_norms', relative: true } as unknown as ViewOptions;

/** A run that logged the norms of two weights. */
function source(): MemoryRun {
  const columns = {
    name: ['fc', 'qkv', 'fc', 'qkv'],
    step: Float64Array.of(1, 1, 2, 2),
    value: Float64Array.of(4, 2, 6, 1)
  };
  return Object.assign(new MemoryRun(), {
    table: async (stream: string) => ({
      columns,
      length: stream === 'weight_norms' ? 4 : 0,
      evictedRows: 0,
      sampledEvery: 1
    })
  });
}

it('the view of another package is registered, drawn, changed, copied and let go of as any other', async () => {
  const registry = new ViewRegistry();
  const offered: string[] = [];
  registry.follow(({ name }) => {
    offered.push(name);
    return { isDisposed: false, dispose: () => undefined };
  });
  await plugin.activate({} as never, registry);
  expect(offered).toContain('weight_norms');

  const node = document.createElement('div');
  const view = await mountView(node, source(), options, { renderer: 'svg' });
  await view.settled();
  expect(node.querySelectorAll('.mark-line path')).toHaveLength(2);
  expect(view.options).toMatchObject({ contains: '', relative: true, smoothing: 0, hidden: [] });
  expect(view.summary()).toBe(
    'fc rose from 1 to 1.5 between step 1 and 2. qkv fell from 1 to 0.5 between step 1 and 2.'
  );
  expect(toCode(view.options)).toBe('run.view("weight_norms", relative=True)');

  await view.update({ contains: 'q' } as Partial<ViewOptions>);
  expect(node.querySelectorAll('.mark-line path')).toHaveLength(1);
  expect(view.summary()).toBe('qkv fell from 1 to 0.5 between step 1 and 2.');
  expect(await view.toSVG()).toContain('qkv');
  node.querySelector<HTMLButtonElement>('button[data-control="relative"]')?.click();
  await view.settled();
  expect(view.options).toMatchObject({ contains: 'q', relative: false });
  await expect(view.update({ colour: 'red' } as Partial<ViewOptions>)).rejects.toThrow('weight_norms');
  view.dispose();
  expect(node.childElementCount).toBe(0);
  const [still] = await readView(source(), options);
  expect(still?.recipe?.datasets['rows']).toHaveLength(4);
  await expect(mountView(node, source(), { view: 'norms' } as never)).rejects.toThrow(
    'There is no such view'
  );
});
