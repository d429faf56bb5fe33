/** @jest-environment ./jest.environment.node.js */
import fc from 'fast-check';
import { FakeHub } from '../../client/__tests__/fake-hub';
import { LiveRun } from '../../store';
import type { Message } from '..';
import { ProtocolError, decodeFrame, decodeMessage, encodeFrame, encodeMessage, frameTable } from '..';
import { FlatTable } from '../frame';
import { names } from './hostile';
import { MESSAGES, mutatedMessage } from './hostile-message';

/** How long one message may be worked on, µs: other work of the machine does not count. */
const MOST_US = 2e6;

it('a message that is wrong somewhere is refused in a sentence or read as it is', () => {
  let accepted = 0;
  fc.assert(
    fc.property(mutatedMessage(), message => {
      const text = JSON.stringify(message);
      const start = process.cpuUsage();
      try {
        const read = decodeMessage(text);
        accepted += 1;
        // Good values are handed on unchanged, and may be sent on.
        expect(JSON.stringify(read)).toBe(text);
        expect(JSON.parse(encodeMessage(read))).toEqual(read);
      } catch (error) {
        if (!(error instanceof ProtocolError)) {
          throw error;
        }
        expect(error.message.length).toBeGreaterThan(10);
        expect(error.message.length).toBeLessThan(1000);
        expect(error.field?.length ?? 0).toBeLessThanOrEqual(300);
      }
      const { user, system } = process.cpuUsage(start);
      expect(user + system).toBeLessThan(MOST_US);
    }),
    { numRuns: 200 }
  );
  // Both ways through must have been taken, or the mutation is broken.
  expect(accepted).toBeGreaterThan(3);
  expect(accepted).toBeLessThan(194);
}, 60_000);

it('every golden message is read as it is', () => {
  MESSAGES.forEach(message => expect(decodeMessage(JSON.stringify(message))).toEqual(message));
});

it('a live run stands whatever its hub says, and is closed or goes on', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(mutatedMessage(), { minLength: 1, maxLength: 12 }),
      fc.boolean(),
      async (said, first) => {
        const hub = new FakeHub();
        const run = new LiveRun({ openSocket: () => hub, peer: { name: 'jest', version: '0' } });
        const hello = MESSAGES.find(each => (each as Message).type === 'hello');
        for (const message of first ? [hello, ...said] : said) {
          hub.say(message);
        }
        expect(['connecting', 'live', 'stale', 'closed']).toContain(run.connection.kind);
        expect(run.hello === null || typeof run.hello.run.id === 'string').toBe(true);
        await run.scalars();
        run.dispose();
      }
    ),
    { numRuns: 25 }
  );
}, 60_000);

describe('a frame', () => {
  it('carries any names there and back', () => {
    fc.assert(
      fc.property(names(1, 8), all => {
        const whole = all.filter(each => !each.includes('\ud800'));
        const columns = {
          step: whole.map((_, at) => at),
          time: whole.map(() => 0),
          rank: whole.map(() => 0),
          name: whole,
          value: whole.map(() => NaN),
          unit: whole
        };
        const table = frameTable(decodeFrame(encodeFrame('scalars', columns, { step: 1 })));
        expect(table.toArray().map(row => row['name'])).toEqual(whole);
      }),
      { numRuns: 40 }
    );
  });

  it('with a text of more than a megabyte in a cell is refused, and with one of less is not', () => {
    const frame = (length: number): Uint8Array =>
      encodeFrame(
        'scalars',
        { step: [1], time: [0], rank: [0], name: ['x'.repeat(length)], value: [1], unit: [''] },
        { step: 1 }
      );
    expect(frameTable(decodeFrame(frame(1 << 20))).numRows).toBe(1);
    expect(() => frameTable(decodeFrame(frame((1 << 20) + 1)))).toThrow('too long');
  });

  it('whose columns all refer to one long name costs no more than its bytes', () => {
    // A vector of 200,000 references to one table: what is read of each would be read as often.
    const many = 200_000;
    const view = new DataView(new ArrayBuffer(many * 4 + 64));
    // Offsets of the table's fields, the table, the reference to it, and the vector that its one field refers to.
    view.setInt16(0, 8, true);
    view.setInt16(4, 4, true);
    view.setInt32(8, 8, true);
    view.setInt32(12, 8, true);
    view.setInt32(16, -8, true);
    view.setInt32(20, many, true);
    expect(() => new FlatTable(view, 16).tables(4, 64)).toThrow('too many parts');
  });
});
