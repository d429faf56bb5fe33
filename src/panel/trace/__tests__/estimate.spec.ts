/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'fs';
import { nullTranslator } from '@jupyterlab/translation';
import type { CompressorSetting, FlagInfo, FlagSetting } from '../../../protocol/messages.generated';
import {
  firstSetting,
  blocksOf,
  estimateBytes,
  FRAME_BYTES,
  positionsOf
} from '../../../views/shared/forecast';
import { layersFault } from '../../../views/shared/layers';
import { compressorText, tilesText } from '../estimate';

const SKETCH = { name: 'Sketch', title: 'Count sketch', description: '', schema: {} };
const trans = nullTranslator.load('megalens');
const POSITIONS = 256;
const ROW = 192;

const flag = (...widths: number[]): FlagInfo => ({
  name: 'MLP1_mat_mul',
  title: 'MLP1 output',
  layers: [0],
  parts: widths.map(String),
  axes: ['position', 'feature'],
  features: widths.reduce((sum, width) => sum + width, 0),
  widths,
  bytes_per_layer: 4 * POSITIONS * widths.reduce((sum, width) => sum + width, 0)
});
const tile = (tiles: number): CompressorSetting => ({ name: 'Tile', params: { tiles, reduction: 'mean' } });

it.each([
  // Features, tiles asked for, tiles of a traced row: 96 of 128 features become 64 of 2, of 512 they become 86 of 6.
  [128, 96, 64],
  [512, 96, 86],
  [512, 64, 64],
  [768, 96, 96],
  [16, 96, 16]
])('estimates of %i features in %i tiles the %i that result', (features, asked, result) => {
  const bytes = estimateBytes(flag(features), { compressor: tile(asked) }, POSITIONS);
  expect(bytes).toBeCloseTo(4 * POSITIONS * result + ROW);
});

it('counts the tiles of parts of different widths', () => {
  const bytes = estimateBytes(flag(128, 32, 32), { compressor: tile(48) }, POSITIONS);
  expect(bytes).toBeCloseTo(4 * POSITIONS * (43 + 32 + 32) + 3 * ROW);
});

it('counts the blocks of attention probabilities, whose sides are powers of two', () => {
  expect([1, 256, 257, 1000, 1025, 4096].map(positions => blocksOf(positions, 256))).toEqual([
    1, 256, 129, 250, 129, 256
  ]);
  const attention: FlagInfo = {
    name: 'RawAttentionScore_mat_mul',
    title: 'Attention probabilities',
    layers: [0],
    parts: [''],
    axes: ['head', 'query', 'key'],
    features: null,
    bytes_per_layer: 4 * 8 * 1000 * 1000
  };
  const peaks = { name: 'Peaks', params: { cells: 256 } };
  expect(estimateBytes(attention, { compressor: peaks }, 1000)).toBeCloseTo(4 * 8 * 250 * 250 + ROW);
  expect(estimateBytes(attention, { compressor: peaks }, null)).toBeNull();
});

it('says in words what is kept, and the title of what has none', () => {
  const words = (name: string, params: Record<string, number | string> = {}) =>
    compressorText({ name, params }, { compressors: [SKETCH] }, trans);
  expect(words('Tile', { tiles: 96, reduction: 'rms' })).toBe('rms of 96 tiles');
  expect(words('Sketch', { rows: 4 })).toBe('Count sketch 4');
});

it('says into how many tiles a tensor is cut', () => {
  expect(tilesText(flag(128), tile(96), trans)).toBe('64 tiles of 2 features: not 96, tiles are of one size');
  expect(tilesText(flag(512), tile(86), trans)).toBe('86 tiles of 6 features, the last of 2');
  expect(tilesText(flag(128, 32, 32), tile(16), trans)).toBe(
    '16 tiles of 8 features; 16 tiles of 2 features'
  );
  expect(tilesText(flag(128), { name: 'NoOp' }, trans)).toBe('');
});

it.each([
  ['9-12', [0, 1, 2, 3], '9-12: this model has layers 0 to 3 here.', '3'],
  ['2-9', [0, 1, 2, 3], '2-9: this model has layers 0 to 3 here.', '2-3'],
  ['0,7', [1, 2, 4], '0,7: this model has layers 1, 2 and 4 here.', '1'],
  ['3-1', [0, 1, 2, 3], '3-1: the smaller layer comes first.', '1-3'],
  ['first', [0, 1, 2, 3], '“first” is no range of layers: “all”, or numbers such as 0-3,7.', 'all']
])('says why layers %s of %j cannot be, and what is nearest', (text, layers, message, nearest) => {
  expect(layersFault(text, layers)).toEqual({ message, nearest });
});

it('finds nothing wrong with layers that are there, or half written', () => {
  for (const text of ['all', '0-3', '1,2', '1-', '1,', '1, ']) {
    expect(layersFault(text, [0, 1, 2, 3])).toBeNull();
  }
});

it('begins with what the run says suits a tensor', () => {
  const compressor = { name: 'Tile', params: { tiles: 64, reduction: 'rms' } };
  expect(firstSetting({ ...flag(512), compressor }, [])).toEqual({ compressor });
  const empty = { name: 'Empty', title: 'Counts only', description: '', schema: {} };
  expect(firstSetting(flag(512), [empty])).toEqual({ compressor: { name: 'Empty', params: {} } });
});

it.each([
  // Frames of a model with 4 layers, 64 positions, 128 features and 2 heads, as its tracer sent them.
  ['MLP1_mat_mul', { name: 'Tile', params: { tiles: 8, reduction: 'mean' } }, 12_032],
  ['MLP1_mat_mul', { name: 'NoOp' }, 528_024],
  ['MLP1_mat_mul', { name: 'Empty' }, 3744],
  ['QKV_mat_mul', { name: 'Empty' }, 5280],
  ['RawAttentionScore_mat_mul', { name: 'Peaks', params: { cells: 16 } }, 12_056]
])('forecasts a frame of %s with %j within 3 %%', (name, compressor, measured) => {
  const layers = [0, 1, 2, 3];
  const info: FlagInfo =
    name === 'RawAttentionScore_mat_mul'
      ? {
          ...{ name, title: '', layers, parts: [''], axes: ['head', 'query', 'key'], features: null },
          bytes_per_layer: 4 * 2 * 64 * 64
        }
      : {
          ...(name === 'QKV_mat_mul' ? flag(128, 128, 128) : flag(512)),
          ...{ name, layers, bytes_per_layer: 4 * 64 * (name === 'QKV_mat_mul' ? 384 : 512) }
        };
  const bytes = (estimateBytes(info, { compressor }, 64) ?? NaN) + FRAME_BYTES;
  expect(Math.abs(bytes / measured - 1)).toBeLessThan(0.03);
});

// What steps of three other models sent, with every compressor, which `tests/tracer/test_sizes.py` measures.
const SIZES = JSON.parse(readFileSync('protocol/fixtures/sizes.json', 'utf8')) as {
  readonly model: string;
  readonly flags: readonly FlagInfo[];
  readonly config: Readonly<Record<string, FlagSetting>>;
  readonly bytes_per_step: number;
}[];

it.each(SIZES.map(each => [each.model, Object.keys(each.config).join(), each] as const))(
  'forecasts what a step of %s sends of %s within 6 %%',
  (_model, _flags, { flags, config, bytes_per_step: measured }) => {
    const sizes = Object.entries(config).map(([name, setting]) => {
      const info = flags.find(each => each.name === name) as FlagInfo;
      return estimateBytes(info, setting, positionsOf(flags)) ?? NaN;
    });
    const bytes = sizes.reduce((sum, each) => sum + each, FRAME_BYTES);
    expect(Math.abs(bytes / measured - 1)).toBeLessThan(0.06);
  }
);

it('has measured sizes of every compressor', () => {
  const measured = SIZES.flatMap(({ config }) =>
    Object.values(config).map(({ compressor }) => compressor.name)
  );
  expect([...new Set(measured)].sort()).toEqual([
    'Empty',
    'Histogram',
    'NoOp',
    'Peaks',
    'Projection',
    'Tile'
  ]);
});
