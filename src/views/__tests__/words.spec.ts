/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { changeWords, scalarsWords } from '../shared/change-words';
import { toCode } from '../code';
import {
  compressorCaption,
  compressorWords,
  omissionWords,
  readCompressor,
  tokenText
} from '../shared/describe';
import { inRanges, isRangeText } from '../../protocol/ranges';
import { chosenLayers, layerName, layerWords } from '../shared/layers';
import { GLOSSARY, meaningOf } from '../shared/glossary';
import { untranslated } from '../shared/translate';
import { missingStepWords } from '../trend/trend-words';

const plain = (text: string): string => text.replace(/\u202f/g, ' ');
const ramp = (
  layer: number,
  low: number,
  high: number
): { layer: number; steps: number[]; values: number[] } => {
  const steps = Array.from({ length: 21 }, (_, at) => at * 100);
  return {
    layer,
    steps,
    values: steps.map(step => (step <= 900 ? low : step >= 1100 ? high : (low + high) / 2))
  };
};

it('says which layers rose, from what to what, and between which steps', () => {
  const series = [ramp(1, 0.3, 0.3), ramp(2, 0.3, 0.31), ramp(3, 0.31, 0.98), ramp(4, 0.3, 0.9)];
  expect(plain(changeWords('rms', series, untranslated))).toBe(
    'rms rose from 0.31 to 0.98 between step 900 and 1 100 in layer 3, likewise in layer 4.'
  );
});

it('gives the values of the very steps that it names', () => {
  const values = [0, 2, 4, 50, 96, 98, 100];
  const steps = values.map((_, at) => at);
  expect(changeWords('rms', [{ layer: 0, steps, values }], untranslated)).toBe(
    'rms rose from 4 to 96 between step 2 and 4 in layer 0.'
  );
});

it('calls steady only what is steady in every layer, and gives the range of all', () => {
  const large = ramp(0, 100, 105);
  expect(plain(changeWords('rms', [large, ramp(1, 7, 7.1)], untranslated))).toBe(
    'rms stayed about the same from step 0 to 2 000 in layers 0 and 1: values of 7 to 105.'
  );
  expect(plain(changeWords('rms', [large, ramp(1, 1, 3)], untranslated))).toBe(
    'rms rose from 1 to 3 between step 900 and 1 100 in layer 1.'
  );
});

it('says that nothing moved when nothing did', () => {
  const series = [ramp(1, 0.3, 0.31), ramp(2, 0.3, 0.3)];
  expect(plain(changeWords('rms', series, untranslated))).toBe(
    'rms stayed about the same from step 0 to 2 000 in layers 1 and 2: values of 0.3 to 0.31.'
  );
});

it('finds a fall and passes over values that are not finite', () => {
  const series = [{ layer: 2, steps: [1, 2, 3, 4], values: [8, NaN, 2, 2] }];
  expect(changeWords('Maximum', series, untranslated)).toBe(
    'Not finite first at step 2 in layer 2. Maximum fell from 8 to 2 between step 1 and 3 in layer 2.'
  );
  expect(changeWords('rms', [{ layer: 1, steps: [1], values: [NaN] }], untranslated)).toContain(
    'too few finite'
  );
});

it('says where a scalar went', () => {
  const loss = { name: 'loss', step: [1, 5, 9], value: [5.5, NaN, 1.62], unit: 'nats/byte' };
  expect(scalarsWords([loss], untranslated)).toBe(
    'loss is NaN first at step 5. loss fell from 5.5 to 1.62 nats/byte between step 1 and 9.'
  );
  expect(scalarsWords([{ ...loss, step: [1], value: [NaN] }], untranslated)).toBe(
    'loss has no finite value.'
  );
  expect(scalarsWords([{ name: 'rate', step: [1], value: [3] }, loss], untranslated)).toBe(
    'loss is NaN first at step 5. rate is 3 at step 1. loss fell from 5.5 to 1.62 nats/byte between step 1 and 9.'
  );
});

it.each([
  [
    { view: 'heatmap', flag: 'MLP1_mat_mul', layers: '1-4', step: 1240 } as const,
    'run.heatmap("MLP1_mat_mul", layers="1-4", step=1240)'
  ],
  [
    { view: 'heatmap', flag: 'HiddenStates', layers: '0', part: null } as const,
    'run.heatmap("HiddenStates")'
  ],
  [
    { view: 'trend', flag: 'HiddenStates', steps: [1, 9], kind: 'heatmap' } as const,
    'run.trend("HiddenStates", steps=range(1, 10), kind="heatmap")'
  ],
  [{ view: 'scalars' } as const, 'run.scalars_view()'],
  [
    { view: 'scalars', names: ['loss'], smoothing: 20 } as const,
    'run.scalars_view(names=["loss"], smoothing=20)'
  ],
  [
    { view: 'statistics', kind: 'map', by: ['name'], columns: 'rank', cells: ['["w",3]'] } as const,
    `run.statistics(kind="map", by=["name"], columns="rank", cells=["[\\"w\\",3]"])`
  ]
])('writes %j as Python', (options, code) => {
  expect(toCode({ ...options, ...('steps' in options ? { steps: [1, 9] } : {}) } as never)).toBe(code);
});

it('writes steps that are open as a slice, and those of a view of others as they are', () => {
  const open = { view: 'scalars', steps: [2, Number.MAX_SAFE_INTEGER] };
  expect(toCode(open as never)).toBe('run.scalars_view(steps=slice(2, None))');
  expect(toCode({ view: 'weight_norms', steps: [2, 5] } as never)).toBe(
    'run.view("weight_norms", steps=[2, 5])'
  );
});

it('names layers in words', () => {
  expect([[3], [3, 4], [1, 2, 3, 4], [1, 2, 3, 7], [1, 3, 5]].map(layers => layerWords(layers))).toEqual([
    'layer 3',
    'layers 3 and 4',
    'layers 1 to 4',
    'layers 1 to 3 and 7',
    'layers 1, 3 and 5'
  ]);
});

it('calls what is no layer’s the embedding', () => {
  expect([[-1], [-1, 0], [-1, 0, 1, 2]].map(layers => layerWords(layers))).toEqual([
    'embedding',
    'embedding and layer 0',
    'embedding and layers 0 to 2'
  ]);
  expect([-1, 0].map(layer => layerName(layer, untranslated))).toEqual(['embedding', 'layer 0']);
  expect(chosenLayers('0-1', [-1])).toEqual([-1]);
  expect(chosenLayers('0-1', [0, 1, 2])).toEqual([0, 1]);
});

it('takes of a range text the layers that exist', () => {
  expect(inRanges('all', [1, 2, 4])).toEqual([1, 2, 4]);
  expect(inRanges('1-3,9', [1, 2, 4])).toEqual([1, 2]);
  expect(inRanges('x', [1])).toEqual([]);
  expect(['all', '1-4,7', '', '1-', 'x'].map(isRangeText)).toEqual([true, true, false, false, false]);
});

it('reads a compressor with commas inside its values', () => {
  expect(readCompressor("Tile(tiles=96, reduction='quantile(data, 0.9)')")).toEqual({
    name: 'Tile',
    params: { tiles: '96', reduction: 'quantile(data, 0.9)' }
  });
  expect(compressorWords("Tile(tiles=96, reduction='mean')", untranslated)).toBe('mean of 96 tiles');
  expect(compressorWords("Tile(tiles=96, reduction='mean')", untranslated, 64)).toBe('mean of 64 tiles');
  expect(compressorWords('NoOp()', untranslated)).toBe('no compression');
  expect(compressorWords('Peaks(cells=256)', untranslated)).toBe(
    'largest of blocks, at most 256 along an axis'
  );
});

it.each([
  ['NoOp', 'NoOp', {}],
  [' NoOp() ', 'NoOp', {}],
  ['Tile(tiles = 4,reduction="it\'s, (so)")', 'Tile', { tiles: '4', reduction: "it's, (so)" }],
  ["Tile(reduction='a\\', b', tiles=2)", 'Tile', { reduction: "a\\', b", tiles: '2' }],
  [
    'Tile(tiles=4, reduction=max(abs(data), [1, 2]))',
    'Tile',
    { tiles: '4', reduction: 'max(abs(data), [1, 2])' }
  ],
  ["Projection(vectors='a=b.npy')", 'Projection', { vectors: 'a=b.npy' }],
  ['Tile(, tiles=4, =3, x=, y)', 'Tile', { tiles: '4' }],
  ["Tile(tiles='", "Tile(tiles='", {}],
  ['Tile((((', 'Tile((((', {}],
  ['not a compressor', 'not a compressor', {}],
  ['', '', {}]
])('reads the compressor %j', (text, name, params) => {
  expect(readCompressor(text)).toEqual({ name, params });
});

it('reads any text as a compressor in time linear in it', () => {
  const began = performance.now();
  for (const piece of ['(', ')', '[', "'", '"', '\\', ',', '=', ' ', 'a', "'(", 'a=(', ' =', '(,']) {
    const long = piece.repeat(50_000);
    for (const text of [long, `Tile(${long}`, `Tile(${long})`, `Tile(a=${long}b)`, `Tile(a=' ${long}')`]) {
      readCompressor(text);
      compressorWords(text, untranslated);
    }
  }
  expect(performance.now() - began).toBeLessThan(3000);
});

it('says everything that was left out, and nothing when nothing was', () => {
  expect(omissionWords({ sampledEvery: 1, evictedRows: 0 }, untranslated)).toEqual([]);
  const words = omissionWords({ sampledEvery: 4, evictedRows: 12, decimatedFrom: 5000 }, untranslated);
  expect(words.map(plain)).toEqual([
    'Of each 4 traced steps the one that departs most is shown: the others were not sent.',
    'Older rows given up to stay within memory: 12.',
    'Drawn from 5 000 points, keeping every minimum and maximum.'
  ]);
});

it('shows the white space of tokens', () => {
  expect(tokenText(' the\n\t')).toBe('␣the⏎⇥');
});

it('names as missing what is known to lack and is not drawn, no other step', () => {
  const why = 'Gone.';
  const missing = [{ first: 0, last: 1060, why }];
  const stepsFrom = (first: number, last: number, every = 1): Float64Array =>
    Float64Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => first + at * every);
  const told = (line: { steps: Float64Array; starts: number[] } | null, spans = missing): string[] =>
    missingStepWords(spans, line ? [line] : [], untranslated).map(plain);
  expect(told(null)).toEqual(['Steps 1 to 1 060 are missing. Gone.']);
  expect(told({ steps: stepsFrom(117, 2000), starts: [] })).toEqual(['Steps 1 to 116 are missing. Gone.']);
  expect(told({ steps: stepsFrom(1, 2000), starts: [] })).toEqual([]);
  expect(told({ steps: stepsFrom(10, 2000, 10), starts: [] })).toEqual([]);
  const holed = Float64Array.of(...stepsFrom(10, 300, 10), ...stepsFrom(500, 900, 10));
  expect(told({ steps: holed, starts: [30] })).toEqual([
    'Steps 301 to 499 are missing. Gone.',
    'Steps 901 to 1 060 are missing. Gone.'
  ]);
  expect(told({ steps: holed, starts: [30] }, [{ first: 310, last: 310, why }])).toEqual([
    'Step 310 is missing. Gone.'
  ]);
  expect(told({ steps: holed, starts: [30] }, [{ first: 301, last: 309, why }])).toEqual([]);
});

it('says of a compressor what it kept, and how that is asked for in code', () => {
  expect(compressorCaption(["Tile(tiles=64, reduction='rms')", 'NoOp()'], untranslated)).toBe(
    "Compressor: rms of 64 tiles, in code Tile(tiles=64, reduction='rms'); then no compression, in code NoOp()."
  );
  expect(compressorCaption(['Other(1)'], untranslated)).toBe('Compressor: Other(1).');
});

it('has one glossary: its words stand in the design language, and are those that a hub calls its compressors', () => {
  const page = readFileSync('docs/design-language.md', 'utf8');
  const table = [...page.matchAll(/^\| \*(.+)\* \| (.+) \|$/gm)].map(([, word, meaning]) => [word, meaning]);
  expect(table).toEqual(Object.values(GLOSSARY).map(each => [...each]));
  const settings = readFileSync('megalens/protocol/settings.py', 'utf8');
  const titles = [...settings.matchAll(/name: ClassVar\[str\] = "(\w+)"\s+title: ClassVar\[str\] = "(.+)"/g)];
  expect(titles.length).toBeGreaterThan(4);
  for (const [, name = '', title] of titles) {
    expect([name, GLOSSARY[name as keyof typeof GLOSSARY][0]]).toEqual([name, title]);
  }
  expect(meaningOf('probes', untranslated)).toMatch(/^Hooks/);
  expect(meaningOf('constructor', untranslated)).toBe('');
});
