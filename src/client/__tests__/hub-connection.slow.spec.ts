import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';
import { ProtocolError, STREAMS, encodeFrame, type IFrame } from '../../protocol';
import type { HubEvent, HubState, IHubConnectionOptions, IHubSocket } from '..';
import { ClientError, HubConnection } from '..';
import { announcement, RealHub, RealProducer, Road, lossFrame, until } from './real-hub';

const peer = { name: 'jest', version: '0.1.0' };
const closers: (() => unknown)[] = [];
let shared: RealHub;

beforeAll(async () => {
  shared = await RealHub.start();
});

afterAll(() => shared.stop());

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) {
    await close();
  }
});

async function startHub(...more: string[]): Promise<RealHub> {
  const hub = await RealHub.start(...more);
  closers.push(() => hub.stop());
  return hub;
}

async function startProducer(hub: RealHub): Promise<RealProducer> {
  const producer = await RealProducer.join(hub);
  closers.push(() => producer.close());
  return producer;
}

class Viewer {
  constructor(options: Omit<IHubConnectionOptions, 'peer'>) {
    this.connection = new HubConnection({ peer, ...options });
    this.connection.event.connect((_, event) => this.events.push(event));
    closers.push(() => this.connection.dispose());
  }

  readonly connection: HubConnection;
  readonly events: HubEvent[] = [];

  of<K extends HubEvent['kind']>(kind: K): Extract<HubEvent, { kind: K }>[] {
    return this.events.filter((event): event is Extract<HubEvent, { kind: K }> => event.kind === kind);
  }

  get frames(): IFrame[] {
    return this.of('frame').map(event => event.frame);
  }

  steps(stream: string): number[] {
    return this.frames.filter(frame => frame.stream === stream).map(frame => frame.step);
  }

  /** Wait until the hub says that a producer is attached. */
  async attached(): Promise<void> {
    await until(
      () => (this.of('status').pop()?.status.producers ?? []).length === 1,
      'a producer is attached'
    );
  }

  async state<K extends HubState['kind']>(kind: K): Promise<Extract<HubState, { kind: K }>> {
    await until(() => this.connection.state.kind === kind, `state ${kind}`);
    return this.connection.state as Extract<HubState, { kind: K }>;
  }
}

describe('a connection to a real hub', () => {
  it('is greeted, told the status, and sent every frame of a producer in order', async () => {
    const hub = await startHub('--name', 'gpt-demo');
    const viewer = new Viewer({ openSocket: hub.opener() });
    await viewer.state('live');
    await until(() => viewer.of('status').length > 0, 'a status');
    expect(viewer.of('hello')[0]).toMatchObject({
      fresh: true,
      hello: { run: { name: 'gpt-demo' }, model: null }
    });
    expect(viewer.of('status')[0]?.status.state).toBe('waiting');

    const producer = await startProducer(hub);
    for (let step = 1; step <= 5; step += 1) {
      producer.step(step);
    }
    await until(() => viewer.steps('tensors').length === 5, 'five tensors frames');
    expect(viewer.of('hello')[1]).toMatchObject({ fresh: false, hello: { model: { layers: 4 } } });
    expect(viewer.steps('scalars')).toEqual([1, 2, 3, 4, 5]);
    const numbers = viewer.frames.map(frame => frame.seq);
    expect(numbers).toEqual(numbers.map((_, index) => index + (numbers[0] ?? 0)));
    expect(viewer.of('gap')).toEqual([]);
  });

  it('sends a late viewer the backlog and then live frames', async () => {
    const hub = await startHub();
    const producer = await startProducer(hub);
    producer.step(1);
    producer.step(2);
    const early = new Viewer({ openSocket: hub.opener() });
    await until(() => early.steps('tensors').length === 2, 'what the first viewer is sent');
    const late = new Viewer({ openSocket: hub.opener(), backlog: 0 });
    await until(
      () => late.of('status').length > 0 && late.steps('scalars').length > 0,
      'the late viewer is served'
    );
    producer.step(3);
    await until(() => late.steps('tensors').includes(3), 'the late viewer sees step 3');
    expect(late.steps('tensors')).toEqual([3]);
    await until(() => late.of('status').length > 1, 'another status');
    expect(late.of('gap')).toEqual([]);
  });

  it('comes back after its link was cut, with nothing missing and nothing twice', async () => {
    const hub = await startHub();
    const producer = await startProducer(hub);
    const road = await Road.to(hub.port);
    closers.push(() => road.close());
    const viewer = new Viewer({ openSocket: hub.opener(road.port) });
    await viewer.state('live');
    for (let step = 1; step <= 60; step += 1) {
      producer.step(step);
      if (step % 20 === 10) {
        await until(() => viewer.steps('scalars').length > 0, 'some frames');
        road.cut();
        await until(() => viewer.connection.state.kind === 'reconnecting', 'the break is noticed');
      }
    }
    await until(() => viewer.steps('tensors').includes(60), 'the last step');
    const expected = Array.from({ length: 60 }, (_, index) => index + 1);
    expect(viewer.steps('tensors')).toEqual(expected);
    // Scalars may come merged, so their rows are counted and not their frames.
    const losses = viewer.frames
      .filter(frame => frame.stream === 'scalars')
      .reduce((sum, frame) => sum + frame.rows, 0);
    expect(losses).toBe(60);
    expect(viewer.of('hello').filter(event => event.fresh)).toHaveLength(1);
    expect(viewer.of('gap')).toEqual([]);
    expect(viewer.of('state').map(event => event.state.kind)).toContain('reconnecting');
  });

  it('resolves a change when it is applied, and says before from which step it can apply', async () => {
    const hub = shared;
    const producer = await startProducer(hub);
    const viewer = new Viewer({ openSocket: hub.opener() });
    await viewer.attached();
    const accepted: number[] = [];
    const patch = {
      flags: { MLP1_mat_mul: { layers: '1-2', compressor: { name: 'Tile', params: { tiles: 8 } } } }
    };
    const answer = viewer.connection.configure(patch, message => accepted.push(message.step));
    await until(() => producer.configure() !== undefined, 'the producer is asked');
    const asked = producer.configure();
    expect(asked?.patch).toEqual(patch);
    const id = asked?.id ?? '';
    producer.say({ type: 'configured', id, applied: false, step: 7, config: { flags: {} } });
    await until(() => accepted.length === 1, 'the change is accepted');
    producer.say({ type: 'configured', id, applied: true, step: 8, config: { flags: patch.flags } });
    expect(await answer).toMatchObject({ applied: true, step: 8, config: { flags: patch.flags } });
    expect(accepted).toEqual([7]);
  });

  it('rejects a change with the typed error of the hub or of the producer', async () => {
    const hub = shared;
    const viewer = new Viewer({ openSocket: hub.opener() });
    await viewer.state('live');
    const setting = { compressor: { name: 'Tile', params: { reduction: 'meen' } } };
    await expect(viewer.connection.configure({ flags: { MLP1_mat_mul: setting } })).rejects.toMatchObject({
      name: 'ProtocolError',
      code: 'no-producer'
    });
    const producer = await startProducer(hub);
    await viewer.attached();
    await expect(viewer.connection.configure({ flags: { Nonsense: setting } })).rejects.toMatchObject({
      code: 'unknown-flag',
      field: 'flags.Nonsense'
    });
    const answer = viewer.connection.configure({ flags: { MLP1_mat_mul: setting } });
    const outcome = expect(answer).rejects.toMatchObject({ code: 'bad-reduction', column: 1 });
    await until(() => producer.configure() !== undefined, 'the producer is asked');
    const reply_to = producer.configure()?.id;
    producer.say({
      type: 'error',
      code: 'bad-reduction',
      message: 'There is no reduction meen.',
      reply_to,
      column: 1
    });
    await outcome;
    await expect(
      viewer.connection.configure({ flags: { F: { every: 0, compressor: { name: 'Tile' } } } })
    ).rejects.toBeInstanceOf(ProtocolError);
  });

  it('carries a request to write text to the producer, its answer to the viewer that asked, and its error', async () => {
    const hub = await startHub();
    const [ada, ben] = [hub.opener(), hub.opener()].map(openSocket => new Viewer({ openSocket }));
    await ada?.state('live');
    await expect(ada?.connection.generate({ prompts: ['x'] })).rejects.toMatchObject({ code: 'no-producer' });
    const producer = await RealProducer.join(hub, { ...announcement(), controls: ['generate'] });
    closers.push(() => producer.close());
    await Promise.all([ada?.attached(), ben?.attached()]);
    let number = 0;
    producer.onRequest = message => {
      number += 1;
      if (message.type === 'generate' && message.request.tokens === 900) {
        const field = 'request.tokens';
        const said = 'tokens must be 0 to 512, got 900.';
        producer.say({ type: 'error', code: 'bad-parameter', message: said, reply_to: message.id, field });
      } else {
        const generation = message.type === 'cancel' ? message.generation : number;
        producer.say({ type: 'generating', id: message.id, generation });
      }
    };
    const answers = await Promise.all([
      ada?.connection.generate({ prompts: ['Once'] }),
      ben?.connection.generate({ prompts: ['Twice'] })
    ]);
    expect(answers.map(each => each?.generation).sort()).toEqual([1, 2]);
    expect(await ada?.connection.cancel(2)).toMatchObject({ generation: 2 });
    await expect(ben?.connection.generate({ prompts: ['x'], tokens: 900 })).rejects.toMatchObject({
      name: 'ProtocolError',
      code: 'bad-parameter',
      field: 'request.tokens'
    });
    const [first] = producer.received.filter(message => message.type === 'generate');
    expect(first).toMatchObject({ by: { name: 'jest' }, request: { prompts: ['Once'] } });
  });

  it('rejects open changes when the link breaks, and ends when the diagnosis says so', async () => {
    const hub = await startHub();
    const producer = await startProducer(hub);
    const viewer = new Viewer({
      openSocket: hub.opener(),
      diagnose: async () => ({ kind: 'closed', reason: 'gone', message: 'The hub is gone.' })
    });
    await viewer.attached();
    const answer = viewer.connection.configure({ flags: { MLP1_mat_mul: null } });
    const outcome = expect(answer).rejects.toMatchObject({ name: 'ClientError', code: 'disconnected' });
    await until(() => producer.configure() !== undefined, 'the producer is asked');
    await hub.stop('SIGKILL');
    await outcome;
    expect(await viewer.state('closed')).toMatchObject({ reason: 'gone' });
    await expect(viewer.connection.configure({ flags: {} })).rejects.toBeInstanceOf(ClientError);
  });

  it('says finished when the hub ends after the producer said goodbye, and gone when before', async () => {
    const finished = await startHub();
    const producer = await startProducer(finished);
    const viewer = new Viewer({ openSocket: finished.opener() });
    await viewer.attached();
    producer.say({ type: 'goodbye', reason: 'finished' });
    await until(
      () => viewer.of('status').some(event => event.status.state === 'finished'),
      'the run is finished'
    );
    await finished.stop();
    expect(await viewer.state('closed')).toMatchObject({ reason: 'finished' });

    const gone = await startHub();
    const other = new Viewer({ openSocket: gone.opener() });
    await other.state('live');
    await gone.stop();
    expect(await other.state('closed')).toMatchObject({ reason: 'gone' });
  });

  it('ends with a version mismatch when the other side speaks another version', async () => {
    const hub = shared;
    const viewer = new Viewer({ openSocket: () => hub.opener()(['megalens.v9']) });
    const state = await viewer.state('closed');
    expect(state.reason).toBe('version');
    expect(state.message).toMatch(/megalens\.v9/);
  });

  it('keeps trying with growing pauses while it is refused', async () => {
    const hub = shared;
    const viewer = new Viewer({ openSocket: hub.opener(hub.port, 'wrong') });
    await until(() => viewer.of('state').length >= 3, 'three tries');
    expect(viewer.connection.state).toMatchObject({ kind: 'reconnecting', attempt: 3 });
    expect(viewer.of('hello')).toEqual([]);
  });

  it('is stale when no frame comes and live again with the next one', async () => {
    const hub = shared;
    const producer = await startProducer(hub);
    const viewer = new Viewer({ openSocket: hub.opener(), staleMs: 300 });
    const stale = await viewer.state('stale');
    expect(Math.abs(Date.now() - stale.since)).toBeLessThan(10_000);
    producer.step(1);
    await until(() => viewer.steps('tensors').length === 1, 'a frame');
    expect(viewer.of('state').map(event => event.state.kind)).toEqual(['live', 'stale', 'live']);
  });

  it('is not stale while the training is paused, which sends no frames', async () => {
    const hub = shared;
    const producer = await startProducer(hub);
    const viewer = new Viewer({ openSocket: hub.opener(), staleMs: 300 });
    await viewer.state('stale');
    producer.say({ type: 'status', state: 'paused', step: 1 });
    const paused = () => viewer.of('status').filter(({ status }) => status.state === 'paused').length;
    await until(() => paused() > 0, 'the pause');
    expect(viewer.connection.state.kind).toBe('live');
    // The hub's next word comes much later than a frame would be missed.
    await until(() => paused() > 1, 'the next status');
    expect(viewer.of('state').map(event => event.state.kind)).toEqual(['live', 'stale', 'live']);
  });

  it('says goodbye when it is disposed of, rejects what is open, and can be disposed of twice', async () => {
    const hub = shared;
    const producer = await startProducer(hub);
    const viewer = new Viewer({ openSocket: hub.opener() });
    const other = new Viewer({ openSocket: hub.opener() });
    await until(() => other.of('status').some(event => event.status.viewers === 2), 'two viewers');
    const answer = viewer.connection.configure({ flags: { MLP1_mat_mul: null } });
    const outcome = expect(answer).rejects.toMatchObject({ code: 'disposed' });
    await until(() => producer.configure() !== undefined, 'the producer is asked');
    viewer.connection.dispose();
    viewer.connection.dispose();
    await outcome;
    expect(viewer.connection.state).toMatchObject({ kind: 'closed', reason: 'disposed' });
    await until(() => other.of('status').slice(-1)[0]?.status.viewers === 1, 'one viewer is left');
  });
});

describe('a connection to a hub that misbehaves', () => {
  async function hostile(serve: (send: (data: string | Uint8Array) => void) => void): Promise<Viewer> {
    const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
    await new Promise(resolve => server.once('listening', resolve));
    server.on('connection', socket => socket.once('message', () => serve(data => socket.send(data))));
    closers.push(() => {
      server.clients.forEach(socket => socket.terminate());
      return new Promise(resolve => server.close(resolve));
    });
    const { port } = server.address() as AddressInfo;
    const { WebSocket } = jest.requireActual<typeof import('ws')>('ws');
    return new Viewer({
      openSocket: protocols => new WebSocket(`ws://127.0.0.1:${port}`, protocols) as unknown as IHubSocket,
      silentMs: 700
    });
  }

  const hello = JSON.stringify({
    type: 'hello',
    protocol: 'megalens.v2',
    run: { id: 'r', name: 'r', started: 0 },
    seq: 0,
    model: null,
    layout: null,
    flags: [],
    compressors: [],
    config: { flags: {} },
    limits: { max_message_bytes: 1, viewer_queue_bytes: 1, backlog_bytes: 1 },
    versions: {}
  });
  const status = (viewer: number): string =>
    JSON.stringify({
      type: 'status',
      state: 'training',
      step: 1,
      dropped: { producer: 0, viewer, recorder: 0 }
    });

  function numbered(frame: Uint8Array, seq: number): Uint8Array {
    new DataView(frame.buffer).setBigUint64(8, BigInt(seq), true);
    return frame;
  }

  it('goes on after garbage, and counts streams that it does not know', async () => {
    const unknown = numbered(encodeFrame('scalars', emptyScalars(), { step: 1 }), 1);
    unknown.fill(0, 40, 64).set(new TextEncoder().encode('sounds'), 40);
    const viewer = await hostile(send => {
      send(hello);
      send('{"type":"nonsense"}');
      send(new Uint8Array(100));
      send(unknown);
      send(numbered(lossFrame(1), 2));
    });
    await until(() => viewer.frames.length === 1, 'the good frame');
    expect(viewer.of('problem').map(event => event.error.code)).toEqual(['bad-message', 'bad-frame']);
    expect(viewer.connection.skippedFrames).toBe(1);
    expect(viewer.connection.state.kind).toBe('live');
  });

  it('reports gaps, telling announced ones from others, and drops what comes twice', async () => {
    const viewer = await hostile(send => {
      send(hello);
      [1, 2, 5, 5, 2].forEach(seq => send(numbered(lossFrame(seq), seq)));
      send(status(0));
      send(numbered(lossFrame(9), 9));
      send(status(30));
    });
    await until(() => viewer.of('status').length === 2, 'both statuses');
    expect(viewer.frames.map(frame => frame.seq)).toEqual([1, 2, 5, 9]);
    expect(viewer.of('gap').map(event => event.gap)).toEqual([
      { first: 3, last: 4, announced: false },
      { first: 6, last: 8, announced: true }
    ]);
  });

  it('gives a link up that has fallen silent', async () => {
    const viewer = await hostile(send => send(hello));
    await until(() => viewer.connection.state.kind === 'reconnecting', 'the silence is noticed');
    expect(viewer.of('state').pop()?.state).toMatchObject({ message: 'The hub fell silent.' });
  });
});

function emptyScalars(): Record<string, number[]> {
  return Object.fromEntries(STREAMS.scalars.fields.map(field => [field.name, []]));
}
