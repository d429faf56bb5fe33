/** @jest-environment ./jest.environment.node.js */
import { cleanPaths } from '../../views/shared/clean-paths';
import { cleaned } from '../recorder';

describe('a text that is passed on', () => {
  it.each([
    ["Projection(vectors='/home/u/models/persona.npy')", "Projection(vectors='…/persona.npy')"],
    ['C:\\Users\\me\\x.npy', '…/x.npy'],
    ['~/runs/a', '…/a'],
    ['file:///home/u/x', '…/x'],
    ['"C:\\\\Users\\\\me\\\\x.npy"', '"…/x.npy"'],
    ['d:/data/x.npy', '…/x.npy'],
    ['\\\\server\\share\\me\\x.npy', '…/x.npy'],
    ['file://host/home/u/x', '…/x'],
    ['sqlite:////home/u/x.db', '…/x.db'],
    ['at host:/home/u/x', 'at host:…/x'],
    ['see https://host/a?from=/home/u/x', 'see https://host/a?from=…/x'],
    ['/home/a+b/c++/x.npy', '…/x.npy'],
    ['nats/byte and 1/s', 'nats/byte and 1/s'],
    ['org/model', 'org/model']
  ])('loses the folders of absolute paths and nothing else: %s', (text, expected) => {
    expect(cleanPaths(text)).toBe(expected);
  });

  it('is found anywhere in a description', () => {
    expect(cleaned({ model: { name: '/home/u/GPT' }, warnings: ['in ~/runs/a'], step: 3 })).toEqual({
      model: { name: '…/GPT' },
      warnings: ['in …/a'],
      step: 3
    });
  });

  const patterns = [
    String.raw`layers\.(\w+)`,
    String.raw`^model\.layers\.(\d+)\.(mlp|attn)$`,
    String.raw`(?i:\w+\.norm\.\w+)`,
    String.raw`(?<layer>\d+)\\.(\\w+)`,
    String.raw`[a-z:\d\w]+\s\S`,
    String.raw`^\/layers\/(\w+)\/`,
    String.raw`(\w+)/(\w+)/(\d+)`,
    '^/?layers/[0-9]+/',
    'https://example.org/docs/a/b.html#part',
    'http://127.0.0.1:8888/lab/tree/a',
    'ws+unix://host/a/b',
    'decoder.layers.3.mlp.experts.5.linear_fc1.weight',
    'org/model/sub.weight',
    './runs/a/b and ../runs/a/b',
    '2026/11/22, 3 / 4 and (a)/(b)/c',
    'and/or, input/output, ~3'
  ];

  it.each(patterns)('keeps patterns, links and names: %s', text => {
    for (const around of [
      text,
      `“${text}”`,
      `'${text}'`,
      `name matches ${text}, layers 1 to 4.`,
      `(${text})`
    ]) {
      expect(cleanPaths(around)).toBe(around);
    }
  });

  it('names no folder of a path, whatever stands around it', () => {
    const folders = ['home', 'ann', 'Ärger', 'a.b', 'c++', 'x(1)', '.cache', 'v-2'];
    const roots = ['/home/', '~/secret/', 'file:///home/', 'C:\\Users\\', '\\\\server\\share\\'];
    roots.forEach((root, at) => {
      for (let count = 1; count <= folders.length; count += 1) {
        const slash = root.includes('\\') ? '\\' : '/';
        const path = `${root}${[...folders.slice(0, count), `file${at}.npy`].join(slash)}`;
        for (const [before, after] of [
          ['', ''],
          ["vectors='", "')"],
          ['of ', ', and https://host/a/b'],
          [String.raw`layers\.(\w+) of `, ' and org/model'],
          ['“', '”']
        ]) {
          const said = cleanPaths(`${before}${path}${after}`);
          expect(said).toBe(`${before}…/file${at}.npy${after}`);
          expect(cleanPaths(said)).toBe(said);
        }
      }
    });
  });
});
