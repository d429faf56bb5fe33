import { Signal } from '@lumino/signaling';
import type { IRunSource } from 'megalens';
import type { ViewOptions } from '../../../../src/protocol/views.generated';
import { ViewRegistry } from '../../../../src/plugins/view-registry';
import { mountView, toCode } from '../../../../src/views';
import plugin from '../index';

const options = { view: 'weight_norms', relative: true } as unknown as ViewOptions;

/** A run that logged the norms of two weights, and a loss. */
function source(): IRunSource {
  const name = ['weight_norm/fc', 'loss', 'weight_norm/qkv', 'weight_norm/fc', 'weight_norm/qkv'];
  const changed = new Signal<object, unknown>({});
  const [step, value] = [Float64Array.of(1, 1, 1, 2, 2), Float64Array.of(4, 9, 2, 6, 1)];
  return { changed, scalars: async () => ({ name, step, value }) } as unknown as IRunSource;
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
  const view = await mountView(node, source(), options);
  expect(node.querySelectorAll('polyline')).toHaveLength(2);
  expect(view.options).toEqual({ view: 'weight_norms', prefix: 'weight_norm/', relative: true });
  expect(view.summary()).toBe('Norms of 2 weights: fc, qkv.');
  expect(toCode(view.options)).toBe('run.view("weight_norms", relative=True)');

  await view.update({ prefix: 'weight_norm/q' } as Partial<ViewOptions>);
  expect(node.querySelectorAll('polyline title')[0]?.textContent).toBe('kv');
  expect(await view.toSVG()).toContain('<polyline');
  await expect(view.update({ colour: 'red' } as Partial<ViewOptions>)).rejects.toThrow('weight_norms');
  view.dispose();
  expect(node.childElementCount).toBe(0);
  await expect(mountView(node, source(), { view: 'norms' } as never)).rejects.toThrow(
    'There is no such view'
  );
});
