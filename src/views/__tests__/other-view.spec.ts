import type { IMountModule } from '../view';
import { registerView } from '../other-views';
import { mountView } from '../registry';
import { readView } from '../still';
import { MemoryRun } from '../../store/__tests__/memory-run';

const options = { view: 'plain', words: 'one' } as never;
const descriptor = {
  name: 'plain',
  title: 'Plain',
  summary: 'Words',
  label: 'Open Plain',
  command: 'example:open-plain',
  offer: [],
  needs: { streams: [], flag: false },
  options: { type: 'object', additionalProperties: false, properties: { words: { type: 'string' } } }
} as const;

it('a view that draws by itself is mounted, changed, exported and let go of as any other', async () => {
  const disposed = jest.fn();
  const module: IMountModule = {
    mount: (node, _source, { words }) => {
      node.innerHTML = `<svg><text>${String(words)}</text></svg>`;
      return {
        update: changed => void (node.innerHTML = `<svg><text>${String(changed['words'])}</text></svg>`),
        dispose: disposed
      };
    }
  };
  const remove = registerView(descriptor, () => Promise.resolve(module));
  const node = document.createElement('div');
  const view = await mountView(node, new MemoryRun(), options);
  expect(node.querySelector('svg')?.textContent).toBe('one');
  expect(view.summary()).toBe('Plain');

  await view.update({ words: 'two' } as never);
  expect(await view.toSVG()).toBe('<svg><text>two</text></svg>');
  await expect(view.update({ colour: 'red' } as never)).rejects.toThrow('plain');
  await expect(readView(new MemoryRun(), options)).rejects.toThrow('without a page');
  view.dispose();
  view.dispose();
  expect(disposed).toHaveBeenCalledTimes(1);
  expect(node.childElementCount).toBe(0);
  remove();
  await expect(mountView(node, new MemoryRun(), options)).rejects.toThrow('There is no such view');
});
