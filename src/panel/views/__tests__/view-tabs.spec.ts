import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import type { Hello } from '../../../protocol/messages.generated';
import type { ViewOptions } from '../../../protocol/views.generated';
import { megalensIcon } from '../../shell/commands';
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
  const preload = jest.fn<Promise<void>, []>(() => Promise.resolve());
  const tabs = new ViewTabs({
    preload,
    // As when it is shown.
    add: tab => void tab.content.content(),
    activate: () => undefined,
    create: async ({ run, options }, frame) => {
      frames.push(frame);
      const widget = new PlainWidget(options, NAMES[run] ?? run);
      made.push(widget);
      return widget;
    },
    icon: megalensIcon,
    trans: nullTranslator.load('megalens')
  });
  const labels = (): string[] => tabs.tracker.filter(() => true).map(({ title }) => title.label);
  return { tabs, labels, frames, made, preload };
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
    await tabs.open('r1', { view: 'moments' });
    await tabs.open('r1', { view: 'heatmap', flag: 'HiddenStates' });
    await settled();
    expect(labels()).toEqual(['Statistics', 'Heatmap · HiddenStates']);
    await tabs.open('r2', { view: 'moments' });
    await settled();
    expect(labels()).toEqual([
      'Statistics · gpt-base',
      'Heatmap · HiddenStates · gpt-base',
      'Statistics · gpt-hot'
    ]);
    const [first, second, third] = tabs.tracker.filter(() => true);
    expect(first!.title.caption).toBe('Statistics of run gpt-base');
    third!.dispose();
    expect(labels()).toEqual(['Statistics', 'Heatmap · HiddenStates']);
    first!.dispose();
    second!.dispose();
  });

  it('take the words for a flag when the run has said them', async () => {
    const { tabs, labels, made } = setUp();
    await tabs.open('r1', { view: 'heatmap', flag: 'HiddenStates' });
    await settled();
    made[0]!.hello = { flags: [{ name: 'HiddenStates', title: 'Hidden states' }] } as Hello;
    made[0]!.introduced.emit();
    expect(labels()).toEqual(['Heatmap · Hidden states']);
    tabs.tracker.forEach(tab => tab.dispose());
  });

  it('are told which frame a view is to fill before it is in there', async () => {
    const { tabs, frames } = setUp();
    await tabs.open('r1', { view: 'moments' });
    await settled();
    const [tab] = tabs.tracker.filter(() => true);
    expect(frames).toEqual([tab!.content.node]);
    tab!.dispose();
  });

  it('keep their options when others are refused', async () => {
    const { tabs } = setUp();
    await tabs.open('r1', { view: 'moments' });
    const [tab] = tabs.tracker.filter(() => true);
    await expect(tab!.setOptions({ view: 'trend', flag: 'HiddenStates' })).rejects.toThrow('no option');
    expect(tab!.options).toEqual({ view: 'moments' });
    await tab!.setOptions({ view: 'moments', kind: 'table' });
    expect(tabs.at(tab!.id)?.options).toEqual({ view: 'moments', kind: 'table' });
    tab!.dispose();
  });
});
