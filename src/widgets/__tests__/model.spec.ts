import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { fullViewOptions, type FullOptionsOf } from '../../protocol';
import { bindings } from '../bindings';
import { MegalensViewModel, createWidgetExports } from '..';
import { MemoryRuns, plainMount, settled } from './fake-view';

const OPTIONS = fullViewOptions({ view: 'trend', flag: 'HiddenStates' }) as FullOptionsOf<'trend'>;

function model(id: string): MegalensViewModel {
  const attributes = { run: { id: 'r1', name: 'gpt-demo', folder: null }, options: OPTIONS };
  const manager = { get_model: () => undefined } as unknown;
  return new MegalensViewModel(attributes, { model_id: id, widget_manager: manager });
}

describe('the model of a view widget', () => {
  it('is there for the cells of the page from when it is made until it is closed', async () => {
    const one = model('a1');
    expect(bindings.get('a1')?.readOptions()).toEqual(OPTIONS);
    await one.close(true);
    expect(bindings.get('a1')).toBeNull();
  });

  it('tells bound views of a change by the kernel', () => {
    const one = model('a2');
    const seen: unknown[] = [];
    one.bound.optionsChanged.connect(bound => seen.push(bound.readOptions()));
    one.set('options', { ...OPTIONS, statistic: 'max' });
    expect(seen).toEqual([{ ...OPTIONS, statistic: 'max' }]);
    void one.close(true);
  });

  it('sends a change to the kernel once, and not what the kernel already has', () => {
    const one = model('a3');
    const saves = jest.spyOn(one, 'save_changes');
    one.bound.writeOptions(OPTIONS as unknown as ReadonlyPartialJSONObject);
    expect(saves).not.toHaveBeenCalled();
    one.bound.writeOptions({ ...OPTIONS, statistic: 'min' });
    expect(saves).toHaveBeenCalledTimes(1);
    expect(one.get('options')).toEqual({ ...OPTIONS, statistic: 'min' });
    void one.close(true);
  });
});

describe('the view of a widget inside another widget', () => {
  it('draws its model, keeps in step with it, and gives its share back', async () => {
    const runs = new MemoryRuns();
    const mount = plainMount();
    const View = createWidgetExports(runs, undefined, mount)['MegalensView'] as new (options: object) => {
      el: HTMLElement;
      render(): void;
      remove(): void;
    };
    const one = model('a4');
    const view = new View({ model: one, options: {} });
    view.render();
    await settled();
    expect(view.el.textContent).toContain('HiddenStates');
    one.set('options', { ...OPTIONS, statistic: 'max' });
    expect(mount.views[0]?.options).toEqual({ ...OPTIONS, statistic: 'max' });
    mount.views[0]?.choose({ ...OPTIONS, statistic: 'std' });
    expect(one.get('options')).toEqual({ ...OPTIONS, statistic: 'std' });
    view.remove();
    expect(mount.views[0]?.disposed).toBe(true);
    expect(runs.shares).toBe(0);
    void one.close(true);
  });
});
