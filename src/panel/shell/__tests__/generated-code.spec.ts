/** @jest-environment ./jest.environment.node.js */
import { panelCode } from '../panel-code';
import { openingCode, python, pythonCall, toCode } from '../../../views/code';

it('writes every value as a literal, and shows what is not seen by its escape', () => {
  expect(python('a"\'\\\n\u0000\u2028\u202e\ud800é𝒳${x}')).toBe(
    '"a\\"\'\\\\\\n\\u0000\\u2028\\u202e\\ud800é𝒳${x}"'
  );
  expect([NaN, Infinity, -Infinity, -1.5, null, true].map(python).join()).toBe(
    'None,1e999,-1e999,-1.5,None,True'
  );
});

it('passes what is no name of an argument as a literal', () => {
  expect(
    pythonCall(
      'f',
      ['x'],
      [
        ['a', 1],
        ['class', 2],
        ['x=os.system("y")', 3]
      ]
    )
  ).toBe('f("x", a=1, **{"class": 2, "x=os.system(\\"y\\")": 3})');
});

it('opens a run by its id or folder, and shows a view, whatever they hold', () => {
  expect(openingCode('a");x("', null)).toBe('megalens.connect("a\\");x(\\"")');
  expect(openingCode('a', "'''\n")).toBe("megalens.open(\"'''\\n\")");
  expect(toCode({ view: 'scalars', 'x)#': 1 } as never)).toBe('run.scalars_view(**{"x)#": 1})');
});

it('calls no compressor that only a hub names', () => {
  const flags = {
    'F=os.system("x")': { compressor: { name: 'os.system', params: { command: 'x' } } },
    MLP1_mat_mul: { compressor: { name: 'Tile', params: { tiles: 4 } } }
  };
  const entry = {
    id: 'r',
    name: 'r',
    state: 'live',
    started: 0,
    ended: null,
    step: null,
    folder: null
  } as const;
  const infos = ['os.system', 'Tile'].map(name => ({ name, title: name, params: {} }));
  const code = panelCode(entry, { flags } as never, [], infos as never);
  expect(code).toContain('from megalens import Tile\n');
  expect(code.replace(/"(?:[^"\\]|\\.)*"/g, '""')).not.toContain('os.system');
  expect(code).toContain('MLP1_mat_mul=Tile(tiles=4)');
});
