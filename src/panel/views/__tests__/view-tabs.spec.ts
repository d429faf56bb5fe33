import { nullTranslator } from '@jupyterlab/translation';
import type { LabIcon } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import type { Hello } from '../../../protocol/messages.generated';
import type { ViewOptions } from '../../../protocol/views.generated';
import { type IViewWidget, ViewTabs } from '../view-tabs';

const NAMES: Readonly<Record<string, string>> = { r1: 'gpt-base', r2: 'gpt-hot' };

class PlainWidget extends Widget implements IViewWidget {
  constructor(
    public options: ViewOptions,
    readonly runName: string
  ) {
    super();
  }
  hello: IViewWidget['hello'] = null;
  readonly introduced = new Signal<this, void>(this);
  readonly optionsChanged = new Signal<this, ViewOptions>(this);
  setOptions(options: ViewOptions): void {
    if (options.view === 'trend') {
      throw new Error('This is no option.');
    }
    this.options = options;
  }
}

function setUp() {
  const frames: HTMLElement[] = [];
  const made: PlainWidget[] = [];
  const places: (string | null)[][] = [];
  const preload = jest.fn<Promise<void>, []>(() => Promise.resolve());
  const tabs = new ViewTabs({
    preload,
    // As when it is shown.
    add: (tab, near, mode) => {
      places.push([near, mode]);
      void tab.content.content();
    },
    activate: () => undefined,
    create: async ({ run, options }, frame) => {
      frames.push(frame);
      const widget = new PlainWidget(options, NAMES[run] ?? run);
      made.push(widget);
      return widget;
    },
    trans: nullTranslator.load('megalens')
  });
  const icons = () => tabs.tracker.filter(() => true).map(({ title }) => (title.icon as LabIcon).name);
  const labels = (): string[] => tabs.tracker.filter(() => true).map(({ title }) => title.label);
  return { tabs, labels, icons, frames, made, places, preload };
}

const settled = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 0));

describe('tabs of views', () => {
  // The toolbar of a JupyterLab tab watches its size, which a page without layout has not.
  beforeAll(() => {
    globalThis.ResizeObserver = class {
      observe = (): void => undefined;
      unobserve = (): void => undefined;
      disconnect = (): void => undefined;
    };
  });

  it('load ahead once, and again where it failed', async () => {
    const { preload, tabs } = setUp();
    preload.mockRejectedValueOnce(new Error('A chunk did not load.'));
    tabs.preload();
    await settled();
    tabs.preload();
    tabs.preload();
    await settled();
    tabs.preload();
    expect(preload).toHaveBeenCalledTimes(2);
  });

  it('name their runs where there are several', async () => {
    const { tabs, labels } = setUp();
    await tabs.open('r1', { view: 'statistics' });
    await tabs.open('r1', { view: 'heatmap', flag: 'HiddenStates' });
    await settled();
    expect(labels()).toEqual(['Statistics', 'HiddenStates · Heatmap']);
    await tabs.open('r2', { view: 'statistics' });
    await settled();
    expect(labels()).toEqual([
      'gpt-base · Statistics',
      'HiddenStates · gpt-base · Heatmap',
      'gpt-hot · Statistics'
    ]);
    const [first, second, third] = tabs.tracker.filter(() => true);
    expect(first!.title.caption).toBe('Statistics of run gpt-base');
    third!.dispose();
    expect(labels()).toEqual(['Statistics', 'HiddenStates · Heatmap']);
    first!.dispose();
    second!.dispose();
    // A tab of 80 pixels shows ten letters: they tell what it is about.
    await tabs.open('r1', { view: 'tokens', generation: 3 });
    await tabs.open('r1', { view: 'health', rule: 'jump' });
    await settled();
    expect(labels().map(label => label.slice(0, 10))).toEqual(['text 3 · T', 'jump · Hea']);
  });

  it('stand together, each with the icon of what it is about, and are used again', async () => {
    const { tabs, icons, places } = setUp();
    await tabs.open('r1', { view: 'scalars' });
    await tabs.open('r1', { view: 'timeline' });
    await tabs.open('r1', { view: 'scalars', smoothing: 5 });
    const [first] = tabs.tracker.filter(() => true);
    expect(places).toEqual([
      [null, null],
      [first!.id, null]
    ]);
    expect(icons()).toEqual(['megalens:statistics', 'megalens:time']);
    expect(first!.options).toEqual({ view: 'scalars', smoothing: 5 });
    tabs.tracker.forEach(tab => tab.dispose());
  });

  it('are shown side by side, also those that were open before', async () => {
    const { tabs, places } = setUp();
    await tabs.open('r1', { view: 'timeline' });
    await tabs.tile('r1', [{ view: 'scalars' }, { view: 'timeline' }, { view: 'health' }]);
    const [timeline, scalars] = tabs.tracker.filter(() => true).map(({ id }) => id);
    expect(places.slice(1)).toEqual([
      [timeline, null],
      [scalars, 'split-right'],
      [timeline, 'split-bottom']
    ]);
    tabs.tracker.forEach(tab => tab.dispose());
  });

  it('take the words for a flag when the run has said them', async () => {
    const { tabs, labels, made } = setUp();
    await tabs.open('r1', { view: 'heatmap', flag: 'HiddenStates' });
    await settled();
    made[0]!.hello = { flags: [{ name: 'HiddenStates', title: 'Hidden states' }] } as Hello;
    made[0]!.introduced.emit();
    expect(labels()).toEqual(['Hidden states · Heatmap']);
    tabs.tracker.forEach(tab => tab.dispose());
  });

  it('say their subject first, in the few letters that a narrow tab shows', async () => {
    const { tabs, labels } = setUp();
    await tabs.open('r1', { view: 'scalars', names: ['loss', 'held_out_loss'] });
    await tabs.open('r1', { view: 'statistics', stat: 'grad', statistic: 'rms' });
    await tabs.open('r1', { view: 'attention', layers: '9' });
    await tabs.open('r1', { view: 'heatmap', flag: 'HiddenStates', layers: '9' });
    await tabs.open('r1', { view: 'timeline' });
    await settled();
    expect(labels()).toEqual([
      'loss +1 · Scalars',
      'grad rms · Statistics',
      'L9 · Attention',
      'L9 HiddenStates · Heatmap',
      'Timeline'
    ]);
    tabs.tracker.forEach(tab => tab.dispose());
  });

  it('are told which frame a view is to fill before it is in there', async () => {
    const { tabs, frames } = setUp();
    await tabs.open('r1', { view: 'statistics' });
    await settled();
    const [tab] = tabs.tracker.filter(() => true);
    expect(frames).toEqual([tab!.content.node]);
    tab!.dispose();
  });

  it('keep their options when others are refused', async () => {
    const { tabs } = setUp();
    await tabs.open('r1', { view: 'statistics' });
    const [tab] = tabs.tracker.filter(() => true);
    await expect(tab!.setOptions({ view: 'trend', flag: 'HiddenStates' })).rejects.toThrow('no option');
    expect(tab!.options).toEqual({ view: 'statistics' });
    await tab!.setOptions({ view: 'statistics', kind: 'table' });
    expect(tabs.at(tab!.id)?.options).toEqual({ view: 'statistics', kind: 'table' });
    tab!.dispose();
  });
});
