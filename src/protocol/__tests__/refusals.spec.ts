/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ErrorMessage, Status } from '..';
import {
  ProtocolError,
  decodeFrame,
  decodeMessage,
  encodeFrame,
  encodeMessage,
  frameTable,
  fullViewOptions,
  keptViewOptions,
  parseLayers
} from '..';

const fixtures = join(__dirname, '../../../protocol/fixtures');
const plain = (): Uint8Array => new Uint8Array(readFileSync(join(fixtures, 'frames/tensors-plain.frame')));

function refusal(action: () => unknown): ProtocolError {
  try {
    action();
  } catch (error) {
    if (error instanceof ProtocolError) {
      return error;
    }
    throw error;
  }
  throw new Error('nothing was refused');
}

const audit = { step: [1], time: [0], who: ['a'], action: ['b'], detail: ['c'] };

describe('a frame is refused', () => {
  it.each<[string, (data: Uint8Array) => Uint8Array, string, RegExp]>([
    ['when half of it came', data => data.subarray(0, data.length / 2), 'bad-frame', /cut short/],
    [
      'when it is shorter than a header',
      data => data.subarray(0, 10),
      'bad-frame',
      /shorter than its header/
    ],
    ['when it is garbage', data => data.fill(7), 'bad-frame', /not a Megalens data frame/],
    [
      'when its header is of another version',
      data => (data.fill(9, 4, 5), data),
      'version-mismatch',
      /Update/
    ],
    ['when its name is no text', data => (data.fill(200, 40, 44), data), 'bad-frame', /ASCII/],
    [
      'when its sequence number cannot be counted',
      data => (data.fill(255, 8, 16), data),
      'bad-frame',
      /sequence/
    ],
    [
      'when its header counts other rows',
      data => (data.fill(99, 32, 33), data),
      'bad-frame',
      /number of rows/
    ]
  ])('%s', (_, change, code, text) => {
    const error = refusal(() => frameTable(decodeFrame(change(plain()))));
    expect(error.code).toBe(code);
    expect(error.message).toMatch(text);
  });

  it('when bytes follow its rows', () => {
    const frame = plain();
    const longer = new Uint8Array(frame.length + 8);
    longer.set(frame);
    new DataView(longer.buffer).setUint32(36, longer.length - 64, true);
    expect(refusal(() => frameTable(decodeFrame(longer))).message).toMatch(/left over/);
  });

  it('when its columns are those of another stream', () => {
    const frame = encodeFrame('audit', audit, { step: 1 });
    frame.fill(0, 40, 64);
    frame.set(new TextEncoder().encode('scalars'), 40);
    const error = refusal(() => frameTable(decodeFrame(frame)));
    expect(error).toMatchObject({ code: 'bad-frame', message: expect.stringContaining('other columns') });
    expect(error.expected).toContain('value: float64');
    expect(error.got).toContain('who: utf8');
  });

  it('when its stream is unknown, but its header can be read so that it can be skipped', () => {
    const frame = encodeFrame('audit', audit, { step: 1, seq: 5 });
    frame.set(new TextEncoder().encode('sounds'), 40);
    const decoded = decodeFrame(frame);
    expect(decoded).toMatchObject({ stream: 'sounds', seq: 5 });
    expect(refusal(() => frameTable(decoded)).message).toMatch(/no stream sounds/);
  });

  it('when it is to be written with other columns', () => {
    expect(refusal(() => encodeFrame('audit', { step: [1] }, { step: 1 })).code).toBe('bad-frame');
    expect(refusal(() => encodeFrame('audit', { ...audit, who: [] }, { step: 1 })).code).toBe('bad-frame');
  });
});

describe('a message is refused', () => {
  it.each<[string, string, string, string | undefined]>([
    ['when it is not JSON', '{"type":', 'bad-message', undefined],
    ['when it holds NaN', '{"type":"status","state":"idle","step":NaN}', 'bad-message', undefined],
    [
      'when it overflows to infinity',
      '{"type":"status","state":"idle","step":0,"time":1e999}',
      'bad-message',
      undefined
    ],
    ['when its type is unknown', '{"type":"toString"}', 'bad-message', 'type'],
    ['when it is a list', '[]', 'bad-message', 'type'],
    [
      'when a member is unknown',
      '{"type":"goodbye","reason":"leaving","constructor":1}',
      'bad-message',
      'constructor'
    ],
    [
      'when it names __proto__',
      '{"type":"goodbye","reason":"leaving","__proto__":1}',
      'bad-message',
      '__proto__'
    ],
    ['when a number is too small', '{"type":"status","state":"idle","step":-1}', 'bad-message', 'step'],
    [
      'when it is of another version',
      '{"type":"hello","protocol":"megalens.v9"}',
      'version-mismatch',
      undefined
    ],
    [
      'when phases repeat',
      '{"type":"configure","id":"a","patch":{"flags":{"f":{"phases":["train","train"],"compressor":{"name":"Tile"}}}}}',
      'bad-message',
      'patch.flags.f.phases'
    ]
  ])('%s', (_, text, code, field) => {
    const error = refusal(() => decodeMessage(text));
    expect(error.code).toBe(code);
    expect(error.field).toBe(field);
  });

  it('when it is nested without end', () => {
    expect(refusal(() => decodeMessage('['.repeat(1e6) + ']'.repeat(1e6))).code).toBe('bad-message');
    const params = '{"a":'.repeat(1e5) + '1' + '}'.repeat(1e5);
    const text = `{"type":"configure","id":"a","patch":{"flags":{"f":{"compressor":{"name":"T","params":${params}}}}}}`;
    expect(refusal(() => decodeMessage(text)).message).toMatch(/nested/);
  });

  it('soon, even with a hundred thousand wrong entries', () => {
    const start = performance.now();
    const phases = JSON.stringify(Array.from({ length: 1e5 }, (_, index) => `p${index}`));
    const many = `{"type":"configure","id":"a","patch":{"flags":{"f":{"phases":${phases},"compressor":{"name":"T"}}}}}`;
    expect(refusal(() => decodeMessage(many)).code).toBe('bad-message');
    const members = Array.from({ length: 3e4 }, (_, index) => `"x${index}":1`).join();
    expect(refusal(() => decodeMessage(`{"type":"goodbye","reason":"leaving",${members}}`)).code).toBe(
      'bad-message'
    );
    expect(performance.now() - start).toBeLessThan(10_000);
  });

  it('when its type may not come here', () => {
    const text = '{"type":"goodbye","reason":"leaving"}';
    expect(decodeMessage(text, ['goodbye']).reason).toBe('leaving');
    expect(refusal(() => decodeMessage(text, ['hello'])).code).toBe('forbidden');
  });

  it('when it is to be sent with a non-finite number', () => {
    const status: Status = { type: 'status', state: 'idle', step: 0, time: Number.NaN };
    expect(refusal(() => encodeMessage(status)).code).toBe('bad-message');
  });
});

describe('an error message', () => {
  it('becomes the error that it says', () => {
    const message = decodeMessage(
      readFileSync(join(fixtures, 'messages/error.json'), 'utf8')
    ) as ErrorMessage;
    expect(ProtocolError.fromMessage(message)).toMatchObject({
      code: 'bad-reduction',
      field: 'flags.MLP1_mat_mul.compressor.params.reduction',
      column: 1,
      got: 'meen'
    });
  });
});

describe('layer ranges', () => {
  it.each<[string, number[]]>([
    ['all', [1, 2, 3, 4]],
    ['2', [2]],
    ['3-4,1', [1, 3, 4]]
  ])('%s means %j', (text, layers) => {
    expect(parseLayers(text, [4, 3, 2, 1])).toEqual(layers);
  });

  it.each(['', 'x', '0', '3-9', '4-2', '1--2', '1e3', '99999999999999999999'])('%j is refused', text => {
    const error = refusal(() => parseLayers(text, [1, 2, 3, 4], 'flags.F.layers'));
    expect(error).toMatchObject({ code: 'unknown-layer', field: 'flags.F.layers' });
  });
});

describe('view options', () => {
  it('of a view that had another name are read as those of its name of today', () => {
    const saved = { view: 'moments', kind: 'map' };
    expect(fullViewOptions(saved)).toEqual(fullViewOptions({ view: 'statistics', kind: 'map' }));
    expect(keptViewOptions(saved)).toMatchObject({
      options: { view: 'statistics', kind: 'map' },
      dropped: []
    });
  });

  it('come back with the defaults of the contract', () => {
    expect(fullViewOptions({ view: 'trend', flag: 'HiddenStates' })).toEqual({
      view: 'trend',
      flag: 'HiddenStates',
      color_range: null,
      baseline: null,
      ignore_outliers: false,
      hidden: [],
      part: null,
      layers: 'all',
      statistic: 'rms',
      kind: 'lines',
      interval: 'none',
      positions: 'all',
      vector: 0,
      steps: null,
      transform: 'linear',
      phase: 'train',
      pass: 'forward',
      rank: null,
      smoothing: 0,
      runs: [],
      compare: 'overlay',
      align: 'step'
    });
  });

  it('take a statistic of kept values that was saved by its plain name', () => {
    const saved = { view: 'trend', flag: 'HiddenStates', statistic: 'abs_mean' };
    expect(fullViewOptions(saved)).toMatchObject({ statistic: 'kept_abs_mean' });
  });

  it.each<[unknown, string]>([
    [null, 'view'],
    [{ view: 'pie' }, 'view'],
    [{ view: 'heatmap', flag: 'F', layers: 'some' }, 'layers'],
    [{ view: 'scalars', smoothing: -1 }, 'smoothing']
  ])('%j is refused with its field', (value, field) => {
    expect(refusal(() => fullViewOptions(value))).toMatchObject({ code: 'bad-parameter', field });
  });
});
