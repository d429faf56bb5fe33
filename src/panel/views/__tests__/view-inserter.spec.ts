import { nullTranslator } from '@jupyterlab/translation';
import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';
import type { Widget } from '@lumino/widgets';
import type { IViewReference } from '../../../tokens';
import type { PanelModel } from '../../shell/panel-model';
import { ViewInserter } from '../view-inserter';
import { LIVE as RUN } from '../../shell/__tests__/memory-panel';
import { FakeNotebook, fakeKernel } from './fake-notebook';

const TREND: IViewReference = { run: 'run-1', options: { view: 'trend', flag: 'HiddenStates' } };

let notebooks: Widget[];
let executed: unknown[];
let told: string[];
let inserter: ViewInserter;

beforeEach(() => {
  [notebooks, executed, told] = [[], [], []];
  inserter = new ViewInserter({
    runs: { list: () => Promise.resolve([RUN]) },
    views: { at: id => (id === 'tab-1' ? TREND : null) },
    panel: {
      model: () =>
        Promise.resolve({
          viewOf: (view: string) => ({ ...TREND, options: { view } })
        } as unknown as PanelModel)
    },
    notebooks: () => notebooks,
    current: () => notebooks[notebooks.length - 1] ?? null,
    execute: async (...command) => void executed.push(command),
    tell: sentence => told.push(sentence),
    trans: nullTranslator.load('megalens')
  });
});

afterEach(() => {
  jest.restoreAllMocks();
  document.body.replaceChildren();
});

function node(html: string, selector: string): HTMLElement {
  const place = document.createElement('div');
  place.innerHTML = html;
  document.body.append(place);
  return place.querySelector<HTMLElement>(selector) as HTMLElement;
}

const pointer = (type: string, x: number, buttons = 1): PointerEvent =>
  Object.assign(new MouseEvent(type, { clientX: x, clientY: 0, buttons, bubbles: true }), {
    pointerId: 1
  }) as unknown as PointerEvent;

describe('the view that an element stands for', () => {
  it('is a button’s of the panel', async () => {
    const button = node(
      '<div class="jp-MegalensViews"><button data-view="scalars"></button></div>',
      'button'
    );
    expect(await inserter.subject(button)).toEqual({ run: 'run-1', options: { view: 'scalars' } });
  });

  it('is a tab’s, from anywhere in it', async () => {
    const title = node('<div class="jp-MegalensViewTab" id="tab-1"><h3></h3></div>', 'h3');
    expect(await inserter.subject(title)).toEqual(TREND);
  });

  it('is none elsewhere', async () => {
    expect(await inserter.subject(node('<p></p>', 'p'))).toBeNull();
    expect(await inserter.subject(null)).toBeNull();
  });
});

describe('inserting', () => {
  it('adds a cell to the notebook in use, with what it lacks', async () => {
    notebooks = [new FakeNotebook([])];
    await inserter.insert(TREND);
    expect(executed).toEqual([
      ['notebook:insert-cell-below'],
      [
        'notebook:replace-selection',
        { text: 'import megalens\n\nrun = megalens.connect("run-1")\nrun.trend("HiddenStates")' }
      ]
    ]);
  });

  it('adds the bare call where the notebook has the run', async () => {
    notebooks = [new FakeNotebook(['run = megalens.connect()'], fakeKernel({ data: "'run-1'" }))];
    await inserter.insert(TREND);
    expect(executed[1]).toEqual(['notebook:replace-selection', { text: 'run.trend("HiddenStates")' }]);
  });

  it('opens the view’s own run where the kernel has another, though the notebook says that it has the newest', async () => {
    notebooks = [new FakeNotebook(['run = megalens.connect()'], fakeKernel({ data: "'run-0'" }))];
    await inserter.insert(TREND);
    expect(executed[1]).toEqual([
      'notebook:replace-selection',
      { text: 'import megalens\n\nmegalens.connect("run-1").trend("HiddenStates")' }
    ]);
  });

  it('says what is missing and adds nothing', async () => {
    await inserter.insert(TREND);
    await inserter.insert(null);
    expect(executed).toEqual([]);
    expect(told).toEqual([
      'There is no open notebook to insert the view into. Open one first.',
      'There is no view to insert. Open one first.'
    ]);
  });
});

describe('dragging', () => {
  it('hands the notebook under the pointer a cell that fits it', async () => {
    const start = jest.spyOn(Drag.prototype, 'start').mockImplementation(() => new Promise(() => undefined));
    const first = new FakeNotebook([]);
    const second = new FakeNotebook(['run = megalens.connect("run-1")'], fakeKernel({ data: "'run-1'" }));
    const late = new FakeNotebook(['run = 5'], fakeKernel('never'));
    notebooks = [first, second, late];
    const title = node('<div class="jp-MegalensViewTab" id="tab-1"><h3></h3></div>', 'h3');
    await inserter.press(pointer('pointerdown', 0), title);
    document.dispatchEvent(pointer('pointermove', 3));
    expect(start).not.toHaveBeenCalled();
    document.dispatchEvent(pointer('pointermove', 8));
    expect(start).toHaveBeenCalledTimes(1);
    // The kernels answer while the hand moves on.
    await new Promise(resolve => setTimeout(resolve));
    const drag = start.mock.contexts[0] as Drag;
    expect(drag.mimeData).toBeInstanceOf(MimeData);
    expect(drag.proposedAction).toBe('copy');
    const source = (on: Widget): string => {
      on.node.dispatchEvent(new Event('lm-drop', { bubbles: true }));
      const [cell] = drag.mimeData.getData('application/vnd.jupyter.cells') as { source: string }[];
      return cell?.source ?? '';
    };
    expect(source(first)).toContain('run = megalens.connect("run-1")\nrun.trend("HiddenStates")');
    expect(source(second)).toBe('run.trend("HiddenStates")');
    expect(source(late)).toContain('megalens.connect("run-1").trend("HiddenStates")');
  });

  it('stays a click where the button was let go of', async () => {
    const start = jest.spyOn(Drag.prototype, 'start').mockResolvedValue('none');
    const title = node('<div class="jp-MegalensViewTab" id="tab-1"><h3></h3></div>', 'h3');
    await inserter.press(pointer('pointerdown', 0), title);
    document.dispatchEvent(pointer('pointermove', 50, 0));
    document.dispatchEvent(pointer('pointermove', 90));
    await inserter.press(pointer('pointerdown', 0), title);
    document.dispatchEvent(pointer('pointerup', 0, 0));
    document.dispatchEvent(pointer('pointermove', 90));
    expect(start).not.toHaveBeenCalled();
  });
});
