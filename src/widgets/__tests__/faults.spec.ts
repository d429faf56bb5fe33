import { MimeModel } from '@jupyterlab/rendermime/lib/mimemodel';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { fullViewOptions } from '../../protocol';
import { VIEW_MIME } from '..';
import { ViewRenderer } from '../mime';
import { ENGLISH } from '../runs';
import { ViewHost, type MountView } from '../view-host';
import { MemoryRuns, plainMount, settled } from './fake-view';

const run = { id: 'r1', name: 'gpt-demo', folder: null };
const buttonOf = (node: HTMLElement, label: string): HTMLButtonElement =>
  [...node.querySelectorAll('button')].find(each => each.textContent === label)!;

describe('a view that fails while it is made', () => {
  it('says so, and is there again with its default options after Reset', async () => {
    const runs = new MemoryRuns();
    const plain = plainMount();
    const mount: MountView = (node, source, options, words, more) => {
      if ('statistic' in options && options.statistic === 'max') {
        throw new TypeError('no max today');
      }
      return plain(node, source, options, words, more);
    };
    const options = fullViewOptions({ view: 'trend', flag: 'constructor', statistic: 'max' });
    const host = new ViewHost({ runs, run, options, mount });
    const told: unknown[] = [];
    host.optionsChanged.connect((_, changed) => told.push(changed));
    await settled();
    expect(host.node.textContent).toContain('Its run is not affected');
    expect(host.node.textContent).toContain('no max today');
    expect(runs.shares).toBe(0);
    const copied: string[] = [];
    Object.defineProperty(navigator, 'clipboard', {
      configurable: true,
      value: { writeText: (text: string) => Promise.resolve(void copied.push(text)) }
    });
    buttonOf(host.node, 'Copy details').click();
    expect(copied[0]).toContain('TypeError: no max today');
    buttonOf(host.node, 'Reset').click();
    await settled();
    expect(plain.views[0]?.options).toEqual(fullViewOptions({ view: 'trend', flag: 'constructor' }));
    expect(told).toEqual([host.options]);
    host.dispose();
    expect(runs.shares).toBe(0);
  });

  it('names the saved options that were left out, until that is noted', async () => {
    const mount = plainMount();
    const options = fullViewOptions({ view: 'statistics' });
    const dropped = ['scale', '__proto__', '<b>'];
    const host = new ViewHost({ runs: new MemoryRuns(), run, options, dropped, mount });
    await settled();
    expect(host.node.textContent).toContain('have their defaults: scale, __proto__, <b>.');
    expect(mount.views).toHaveLength(1);
    buttonOf(host.node, 'Dismiss').click();
    expect(host.node.textContent).not.toContain('have their defaults');
    host.dispose();
  });
});

it('a cell whose saved options are garbage keeps its picture and can be drawn with the defaults', async () => {
  const runs = new MemoryRuns();
  const mount = plainMount();
  const renderer = new ViewRenderer(runs, ENGLISH, mount);
  const json = (options: unknown): MimeModel =>
    new MimeModel({
      data: {
        [VIEW_MIME]: { format: 1, run, options } as ReadonlyPartialJSONObject,
        'text/html': '<figure><svg data-step="3"></svg></figure>'
      }
    });
  await renderer.renderModel(json({ view: 'heatmap', flag: 'F', scale: 'huge', step: 3, constructor: 1 }));
  expect(renderer.node.querySelector('img')).not.toBeNull();
  buttonOf(renderer.node, 'Draw with default options').click();
  await settled();
  expect(mount.views[0]?.options).toEqual(fullViewOptions({ view: 'heatmap', flag: 'F', step: 3 }));
  expect(renderer.node.textContent).toContain('have their defaults: scale, constructor.');
  for (const garbage of [
    null,
    [],
    'x',
    7,
    {},
    { view: 'toString' },
    { view: 'heatmap' },
    { view: ['heatmap'] }
  ]) {
    await renderer.renderModel(json(garbage));
    expect(renderer.node.querySelector('[role="status"] p')?.textContent).not.toBe('');
    expect(renderer.node.querySelector('button')).toBeNull();
  }
  renderer.dispose();
  expect(runs.shares).toBe(0);
});
