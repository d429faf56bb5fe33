/** @jest-environment ./jest.environment.node.js */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { LiveRun } from '../../store/live-run';
import { ClientError, HubConnection } from '..';
import { FakeHub } from './fake-hub';

const HELLO = JSON.parse(
  readFileSync(join(__dirname, '../../../protocol/fixtures/messages/hello.json'), 'utf8')
) as Record<string, unknown>;

/** The hub of a run whose model writes text: it hears what is asked and answers what the test says. */
class WritingHub extends FakeHub {
  greet(controls: readonly string[] = ['generate']): void {
    this.open();
    this.say({ ...HELLO, controls });
  }

  /** Id of what was asked last. */
  get id(): string {
    const last = this.asked.at(-1);
    return last && 'id' in last ? last.id : '';
  }
}

let hub: WritingHub;
const open: { dispose(): void }[] = [];

beforeEach(() => {
  hub = new WritingHub();
});

afterEach(() => {
  open.splice(0).forEach(each => each.dispose());
  jest.useRealTimers();
});

const options = { openSocket: () => hub, peer: { name: 'jest', version: '0' } };

function connect(): HubConnection {
  const connection = new HubConnection(options);
  open.push(connection);
  return connection;
}

describe('a request to write text', () => {
  it('is sent with an id of its own, and resolves with the answer to it alone', async () => {
    const connection = connect();
    hub.greet();
    const first = connection.generate({ prompts: ['Once'], tokens: 8 });
    const id = hub.id;
    const second = connection.generate({ prompts: ['Twice'] });
    expect(hub.asked.at(-2)).toEqual({ type: 'generate', id, request: { prompts: ['Once'], tokens: 8 } });
    expect(hub.id).not.toBe(id);
    hub.say({ type: 'generating', id: 'another-1', generation: 9 });
    hub.say({ type: 'generating', id: hub.id, generation: 4, control: 3 });
    hub.say({ type: 'generating', id, generation: 2 });
    expect(await second).toMatchObject({ generation: 4, control: 3 });
    expect((await first).generation).toBe(2);
  });

  it('rejects with the typed error that names the field', async () => {
    const connection = connect();
    hub.greet();
    const answer = connection.generate({ prompts: ['x'], tokens: 900 });
    hub.say({
      type: 'error',
      code: 'bad-parameter',
      message: 'tokens must be 0 to 512, got 900.',
      reply_to: hub.id,
      field: 'request.tokens'
    });
    await expect(answer).rejects.toMatchObject({
      name: 'ProtocolError',
      code: 'bad-parameter',
      field: 'request.tokens',
      message: 'tokens must be 0 to 512, got 900.'
    });
  });

  it.each([
    ['no prompt', { prompts: [] }, 'request.prompts'],
    ['an empty one', { prompts: [''] }, 'request.prompts.0'],
    ['129 of them', { prompts: Array.from({ length: 129 }, () => 'x') }, 'request.prompts'],
    ['a temperature below 0', { prompts: ['x'], temperature: -1 }, 'request.temperature'],
    ['half a character', { prompts: ['\ud800'] }, undefined]
  ])('with %s is refused here, and nothing is sent', async (_, request, field) => {
    const connection = connect();
    hub.greet();
    const before = hub.asked.length;
    const error: unknown = await connection.generate(request).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ name: 'ProtocolError', code: 'bad-message' });
    if (field !== undefined) {
      expect(error).toMatchObject({ field });
    }
    expect(hub.asked).toHaveLength(before);
  });

  it('rejects where there is no link, when the link breaks, and when nobody answers', async () => {
    jest.useFakeTimers();
    const connection = connect();
    await expect(connection.generate({ prompts: ['x'] })).rejects.toMatchObject({ code: 'disconnected' });
    hub.greet();
    const unanswered = expect(connection.generate({ prompts: ['x'] })).rejects.toMatchObject({
      code: 'timeout'
    });
    jest.advanceTimersByTime(11_000);
    await unanswered;
    const answer = expect(connection.cancel(1)).rejects.toBeInstanceOf(ClientError);
    hub.onclose?.({ code: 1006, reason: '' } as never);
    await answer;
  });

  it('can be taken back by the number of its generation', async () => {
    const connection = connect();
    hub.greet();
    const answer = connection.cancel(7);
    expect(hub.asked.at(-1)).toEqual({ type: 'cancel', id: hub.id, generation: 7 });
    hub.say({ type: 'generating', id: hub.id, generation: 7 });
    expect(await answer).toMatchObject({ generation: 7 });
  });
});

describe('a live run', () => {
  it('can be asked to write text where its hello says so, and not otherwise', async () => {
    const run = new LiveRun(options);
    open.push(run);
    expect(run.generate).toBeUndefined();
    hub.greet(['pause']);
    expect(run.generate).toBeUndefined();
    expect(run.cancelGeneration).toBeUndefined();
    hub.say({ ...HELLO, controls: ['generate'] });
    const answer = run.generate?.({ prompts: ['Once'] });
    await Promise.resolve();
    hub.say({ type: 'generating', id: hub.id, generation: 5 });
    expect(await answer).toEqual({ generation: 5, control: null });
    const ended = run.cancelGeneration?.(5);
    await Promise.resolve();
    hub.say({ type: 'generating', id: hub.id, generation: 5 });
    await ended;
    run.dispose();
    await expect(run.generate?.({ prompts: ['x'] })).rejects.toMatchObject({ code: 'disposed' });
  });
});
