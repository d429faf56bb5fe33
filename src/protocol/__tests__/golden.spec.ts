/** @jest-environment ./jest.environment.node.js */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  BIT_CAUGHT_UP,
  BIT_MERGED,
  STREAMS,
  decodeFrame,
  decodeMessage,
  encodeFrame,
  encodeMessage,
  frameTable
} from '..';
import { releaseFrame } from '../frame';

const fixtures = join(__dirname, '../../../protocol/fixtures');
const frames = readdirSync(join(fixtures, 'frames')).filter(name => name.endsWith('.frame'));
const messages = readdirSync(join(fixtures, 'messages'));

const readFrame = (name: string): Uint8Array => new Uint8Array(readFileSync(join(fixtures, 'frames', name)));
const describeFrame = (name: string): Record<string, unknown> =>
  JSON.parse(readFileSync(join(fixtures, 'frames', name.replace('.frame', '.json')), 'utf8'));

// The fixtures are JSON, which has no word for these.
function plain(value: unknown): unknown {
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    return Array.from(value as Float32Array, plain);
  }
  if (Array.isArray(value)) {
    return value.map(plain);
  }
  if (Object.is(value, -0)) {
    return '-0';
  }
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
}

function rowsOf(data: Uint8Array): { header: object; rows: Record<string, unknown>[] } {
  const { body: _body, rows: count, timeUs, ...header } = decodeFrame(data);
  const table = frameTable(decodeFrame(data));
  expect(table.numRows).toBe(count);
  const rows = table
    .toArray()
    .map(row => Object.fromEntries(Object.entries(row).map(([key, value]) => [key, plain(value)])));
  return { header: { ...header, time_us: timeUs }, rows };
}

describe('golden frames', () => {
  it('are there', () => {
    expect(frames.length).toBeGreaterThanOrEqual(8);
  });

  it.each(frames)('%s decodes to what is written beside it', name => {
    const { rows: expected, ...header } = describeFrame(name);
    const decoded = rowsOf(readFrame(name));
    expect(decoded.header).toEqual(header);
    expect(decoded.rows).toEqual(expected);
  });

  it.each(frames)('%s comes back the same after encoding it here', name => {
    const frame = decodeFrame(readFrame(name));
    const columns = frameTable(frame).toColumns();
    const again = encodeFrame(frame.stream, columns, frame);
    expect(rowsOf(again)).toEqual(rowsOf(readFrame(name)));
    expect(again.byteLength % 8).toBe(0);
  });

  it('say that they are caught up, and merged', () => {
    const { bits } = decodeFrame(readFrame('scalars-caught-up.frame'));
    expect([BIT_CAUGHT_UP, BIT_MERGED, bits]).toEqual([1, 2, 3]);
  });

  it('cover every stream', () => {
    expect(new Set(frames.map(name => describeFrame(name).stream))).toEqual(new Set(Object.keys(STREAMS)));
  });

  it('give the values of tensors as views of the frame', () => {
    const data = readFrame('tensors-plain.frame');
    const values: unknown = frameTable(decodeFrame(data)).getChild('values')?.at(0);
    expect(values).toBeInstanceOf(Float32Array);
    expect((values as Float32Array).buffer).toBe(data.buffer);
  });

  it('give the memory of a message back, and of a buffer with other things in it nothing', () => {
    const data = readFrame('tensors-plain.frame');
    const given: number[] = [];
    for (const before of [0, 4096]) {
      const buffer = new ArrayBuffer(before + data.byteLength);
      new Uint8Array(buffer).set(data, before);
      Object.defineProperty(buffer, 'transfer', { value: () => given.push(before) });
      releaseFrame(decodeFrame(new Uint8Array(buffer, before)));
    }
    expect(given).toEqual([0]);
  });

  it('decode from any place in a buffer', () => {
    const data = readFrame('tensors-plain.frame');
    const shifted = new Uint8Array(data.byteLength + 3);
    shifted.set(data, 3);
    expect(rowsOf(shifted.subarray(3))).toEqual(rowsOf(data));
  });
});

describe('golden messages', () => {
  it('are there', () => {
    expect(messages.length).toBeGreaterThanOrEqual(14);
  });

  it.each(messages)('%s decodes and comes back the same', name => {
    const value: unknown = JSON.parse(readFileSync(join(fixtures, 'messages', name), 'utf8'));
    const message = decodeMessage(JSON.stringify(value));
    expect(message).toEqual(value);
    expect(JSON.parse(encodeMessage(message))).toEqual(value);
  });
});
