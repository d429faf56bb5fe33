/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { encodeFrame } from '../../protocol';
import { HubConnection, type HubEvent } from '..';
import { FakeHub } from './fake-hub';

const fixture = (name: string): Record<string, unknown> =>
  JSON.parse(readFileSync(join(__dirname, `../../../protocol/fixtures/messages/${name}.json`), 'utf8'));
const HELLO = fixture('hello');
const STATUS = fixture('status');

function connected(): { hub: FakeHub; connection: HubConnection; events: HubEvent[] } {
  const hub = new FakeHub();
  const connection = new HubConnection({ openSocket: () => hub, peer: { name: 'jest', version: '0' } });
  const events: HubEvent[] = [];
  connection.event.connect((_, event) => events.push(event));
  hub.open();
  open.push(connection);
  return { hub, connection, events };
}

const open: HubConnection[] = [];
afterEach(() => {
  open.splice(0).forEach(each => each.dispose());
});

const huge = (many: number): string => JSON.stringify('x'.repeat(many));
const [flag] = HELLO['flags'] as object[];
const text = (more: object): string => JSON.stringify({ ...HELLO, ...more });

describe('a hello that lies', () => {
  it.each<[string, () => unknown]>([
    ['is no JSON', () => '{"type":'],
    ['is of 400 digits', () => text({ seq: 1 }).replace('"seq":1', `"seq":1${'0'.repeat(400)}`)],
    ['counts beyond 2^53', () => text({ seq: 1 }).replace('"seq":1', '"seq":9007199254740993')],
    [
      'traces every 10**400th step',
      () =>
        text({ config: { flags: { f: { every: 7, compressor: { name: 'T' } } } } }).replace(
          '"every":7',
          `"every":1${'0'.repeat(400)}`
        )
    ],
    [
      'starts at 1e999',
      () => text({ run: { id: 'r', name: 'n', started: 7 } }).replace('"started":7', '"started":1e999')
    ],
    ['has half a character', () => text({ versions: { a: 'b' } }).replace('"b"', '"\\ud800"')],
    ['has half a character as a name', () => text({ versions: { a: 'b' } }).replace('"a":', '"\\udc00":')],
    ['has a name of 17 MB', () => text({ versions: { a: 1 } }).replace('"a":1', `"a":${huge(17e6)}`)],
    [
      'has a hundred thousand versions',
      () => text({ versions: Object.fromEntries(Array.from({ length: 1e5 }, (_, at) => [`v${at}`, ''])) })
    ],
    [
      'is nested without end',
      () => text({ versions: 1 }).replace('"versions":1', `"versions":${'['.repeat(1e5)}${']'.repeat(1e5)}`)
    ],
    ['names a flag twice', () => text({ flags: [flag, flag] })],
    ['is a frame', () => new Uint8Array(100)]
  ])('and %s closes the link for good, with a sentence, once', (_, lie) => {
    const { hub, connection, events } = connected();
    hub.say(lie());
    expect(connection.state).toMatchObject({ kind: 'closed', reason: 'unreadable' });
    expect(connection.state.kind === 'closed' && connection.state.message.length).toBeGreaterThan(10);
    expect(connection.state.kind === 'closed' && connection.state.message.length).toBeLessThan(2000);
    expect(hub.closed).toBe(true);
    expect(events.filter(({ kind }) => kind === 'hello')).toEqual([]);
    // What comes after the close is not read.
    hub.say(HELLO);
    expect(connection.state.kind).toBe('closed');
  });
});

describe('a hub that lies after its hello', () => {
  it('is forgiven some messages and frames, which are told', () => {
    const { hub, connection, events } = connected();
    hub.say(HELLO);
    hub.say({ ...STATUS, step: 2 ** 60 });
    hub.say({ type: 'later', version: 2 });
    hub.say(new Uint8Array(10));
    expect(connection.state.kind).toBe('live');
    expect(events.filter(({ kind }) => kind === 'problem')).toHaveLength(3);
    hub.say(STATUS);
    hub.say(
      encodeFrame(
        'scalars',
        { step: [1], time: [1], rank: [0], name: ['__proto__'], value: [1], unit: [''] },
        { step: 1, seq: 1e6 }
      )
    );
    expect(events.some(({ kind }) => kind === 'status')).toBe(true);
    expect(events.some(({ kind }) => kind === 'frame')).toBe(true);
  });

  it('is left when it says nothing else', () => {
    const { hub, connection } = connected();
    hub.say(HELLO);
    for (let at = 0; at < 1000 && connection.state.kind !== 'closed'; at += 1) {
      hub.say('{');
    }
    expect(connection.state).toMatchObject({ kind: 'closed', reason: 'unreadable' });
  });

  it('is left at once for a text that is longer than any message', () => {
    const { hub, connection } = connected();
    hub.say(HELLO);
    hub.say(`{"type":"status","warnings":[${huge(17e6)}]}`);
    expect(connection.state).toMatchObject({ kind: 'closed', reason: 'unreadable' });
  });
});
