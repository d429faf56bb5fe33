/** @jest-environment ./jest.environment.node.js */
import fc from 'fast-check';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MAGIC, ProtocolError, decodeFrame, decodeMessage, encodeFrame, frameTable } from '..';

// `make fuzz` runs 40,000 of each, after a change of what reads them.
const MUTANTS = Number(process.env.MEGALENS_FUZZ_CASES ?? 500);
const folder = join(__dirname, '../../../protocol/fixtures');
const frames = readdirSync(join(folder, 'frames'))
  .filter(name => name.endsWith('.frame'))
  .map(name => new Uint8Array(readFileSync(join(folder, 'frames', name))));
const messages = readdirSync(join(folder, 'messages')).map(name =>
  readFileSync(join(folder, 'messages', name), 'utf8')
);

/** Small seeded generator (mulberry32): the same mutants in every run. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const EDGES = [
  0, 1, 2, 7, 8, 127, 128, 255, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x01000000
];

function mutateBytes(source: Uint8Array, below: (n: number) => number): Uint8Array {
  let bytes = source.slice();
  for (let times = 1 + below(4); times > 0; times -= 1) {
    const view = new DataView(bytes.buffer);
    const at = below(Math.max(1, bytes.length));
    switch (below(6)) {
      case 0:
        bytes[at] = below(256);
        break;
      case 1:
        bytes[at] = (bytes[at] ?? 0) ^ (1 << below(8));
        break;
      case 2:
        if (at + 4 <= bytes.length) {
          view.setUint32(at, EDGES[below(EDGES.length)] ?? 0, true);
        }
        break;
      case 3:
        bytes = bytes.slice(0, at);
        break;
      case 4: {
        const from = below(Math.max(1, bytes.length));
        bytes.copyWithin(at, from, from + below(64));
        break;
      }
      default: {
        const grown = new Uint8Array(bytes.length + 8);
        grown.set(bytes.subarray(0, at));
        grown.set(bytes.subarray(at), at + 8);
        bytes = grown;
      }
    }
  }
  // Half of the mutants keep an honest header, so that the body's reader is reached.
  if (bytes.length >= 64 && below(2) === 0) {
    new DataView(bytes.buffer).setUint32(36, bytes.length - 64, true);
    new DataView(bytes.buffer).setUint32(0, MAGIC, true);
    new DataView(bytes.buffer).setUint16(4, 1, true);
  }
  return bytes;
}

const PIECES = [
  '{',
  '}',
  '[',
  ']',
  '"',
  ',',
  ':',
  'null',
  '-1',
  '1e999',
  '"__proto__":1,',
  '\ud800',
  '0.5',
  'NaN',
  '\\u0000',
  '{"flags":'
];

function mutateText(source: string, below: (n: number) => number): string {
  let text = source;
  for (let times = 1 + below(3); times > 0; times -= 1) {
    const at = below(text.length + 1);
    const piece = PIECES[below(PIECES.length)] ?? '';
    switch (below(5)) {
      case 0:
        text = text.slice(0, at) + text.slice(at + 1 + below(5));
        break;
      case 1:
        text = text.slice(0, at) + piece + text.slice(at);
        break;
      case 2:
        text = text.slice(0, at) + String.fromCharCode(below(0x250)) + text.slice(at + 1);
        break;
      case 3:
        text = text.slice(0, at);
        break;
      default: {
        // Swap one whole value for another: stays JSON, so that the schema is what has to say no.
        const values = [...text.matchAll(/"[^"]*"(?!\s*:)|-?\d+(\.\d+)?|true|false|null/g)];
        const hit = values[below(Math.max(1, values.length))];
        const other = values[below(Math.max(1, values.length))];
        if (hit && other) {
          text = text.slice(0, hit.index) + other[0] + text.slice(hit.index + hit[0].length);
        }
      }
    }
  }
  return text;
}

/** Run one decoder; everything but a `ProtocolError` passes on. Answers whether the mutant was accepted. */
function survives(decode: () => void): boolean {
  try {
    decode();
    return true;
  } catch (error) {
    if (!(error instanceof ProtocolError)) {
      throw error;
    }
    expect(error.message.length).toBeGreaterThan(10);
    return false;
  }
}

// Touch every cell, as a store does: a lying offset shows only when its rows are read.
function readWhole(data: Uint8Array): void {
  const frame = decodeFrame(data);
  const table = frameTable(frame);
  let cells = 0;
  for (const row of table) {
    for (const value of Object.values(row)) {
      cells += ArrayBuffer.isView(value) ? value.byteLength : 1;
    }
  }
  // Lists that overlap would multiply the bytes that came.
  expect(cells).toBeLessThanOrEqual(data.byteLength * 16);
}

// After a collection: what is only waiting to be collected is no growth.
function memoryInUse(): NodeJS.MemoryUsage {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage();
}

function slowest(run: (index: number) => void): number {
  let worst = 0;
  for (let index = 0; index < MUTANTS; index += 1) {
    const start = performance.now();
    run(index);
    worst = Math.max(worst, performance.now() - start);
  }
  return worst;
}

describe('decoders under mutation', () => {
  it(`answer ${MUTANTS} mutated frames with rows or a ProtocolError, without hang or growth`, () => {
    const below = random(20261121);
    const before = memoryInUse();
    let accepted = 0;
    const worst = slowest(index => {
      const mutant = mutateBytes(frames[index % frames.length] ?? new Uint8Array(), below);
      accepted += survives(() => readWhole(mutant)) ? 1 : 0;
    });
    const after = memoryInUse();
    // Both ways through must have been taken, or the mutator is broken.
    expect(accepted).toBeGreaterThan(MUTANTS / 100);
    expect(accepted).toBeLessThan(MUTANTS / 2);
    expect(worst).toBeLessThan(1000);
    expect(after.heapUsed - before.heapUsed).toBeLessThan(50e6);
    expect(after.arrayBuffers - before.arrayBuffers).toBeLessThan(50e6);
  }, 120_000);

  it(`answer ${MUTANTS} mutated messages with a message or a ProtocolError, without hang or growth`, () => {
    const below = random(42);
    const before = memoryInUse().heapUsed;
    let accepted = 0;
    const worst = slowest(index => {
      const mutant = mutateText(messages[index % messages.length] ?? '', below);
      accepted += survives(() => decodeMessage(mutant)) ? 1 : 0;
    });
    expect(accepted).toBeGreaterThan(MUTANTS / 1000);
    expect(accepted).toBeLessThan(MUTANTS / 2);
    expect(worst).toBeLessThan(1000);
    expect(memoryInUse().heapUsed - before).toBeLessThan(50e6);
  }, 120_000);

  it('answer any bytes and any JSON', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), bytes => {
        survives(() => readWhole(bytes));
      }),
      { numRuns: 500 }
    );
    fc.assert(
      fc.property(fc.json(), fc.constantFrom('hello', 'status', 'configure', 'error'), (json, type) => {
        survives(() => decodeMessage(json));
        survives(() =>
          decodeMessage(JSON.stringify({ type, config: JSON.parse(json), flags: JSON.parse(json) }))
        );
      }),
      { numRuns: 500 }
    );
  });

  it('carry any scalars there and back', () => {
    const row = fc.record({
      step: fc.maxSafeInteger(),
      time: fc.double(),
      rank: fc.integer({ min: 0, max: 1 << 30 }),
      name: fc.string({ unit: 'grapheme' }),
      value: fc.double(),
      unit: fc.string({ unit: 'grapheme' })
    });
    fc.assert(
      fc.property(fc.array(row, { maxLength: 20 }), rows => {
        const names = ['step', 'time', 'rank', 'name', 'value', 'unit'] as const;
        const columns = Object.fromEntries(names.map(name => [name, rows.map(item => item[name])]));
        const table = frameTable(decodeFrame(encodeFrame('scalars', columns, { step: 1, seq: 3 })));
        expect(table.toArray()).toEqual(rows);
      }),
      { numRuns: 100 }
    );
  });
});
