import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import WebSocket from 'ws';
import type { Announce, Cancel, Configure, Generate, Message } from '../../protocol';
import { decodeMessage, encodeFrame, encodeMessage, readableStreams } from '../../protocol';
import { byName } from '../../protocol/records';
import type { IHubSocket, SocketFactory } from '../pending-changes';

const ROOT = join(__dirname, '../../..');

/** Wait until something holds; looks again after every turn of events, and gives up after `ms`. */
export async function until(holds: () => boolean, what: string, ms = 20_000): Promise<void> {
  const end = Date.now() + ms;
  while (!holds()) {
    if (Date.now() > end) {
      throw new Error(`waited ${ms} ms in vain for: ${what}`);
    }
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}

/** A hub process of our own. */
export class RealHub {
  private constructor(
    private readonly process: ChildProcess,
    /** Where its runtime file is. */
    readonly folder: string,
    readonly port: number,
    readonly token: string,
    private readonly sharesFolder: boolean
  ) {}

  static async start(...more: string[]): Promise<RealHub> {
    return RealHub.begin(mkdtempSync(join(tmpdir(), 'megalens-hub-')), false, more);
  }

  /** Start one whose runtime file is in a folder that others use too; it stays when the hub is stopped. */
  static async startIn(folder: string, ...more: string[]): Promise<RealHub> {
    return RealHub.begin(folder, true, more);
  }

  private static async begin(folder: string, shares: boolean, more: readonly string[]): Promise<RealHub> {
    const child = spawn(
      join(ROOT, '.venv/bin/python'),
      ['-m', 'megalens', 'hub', '--linger', '60', ...more],
      {
        cwd: ROOT,
        env: { ...process.env, MEGALENS_RUNTIME_DIR: folder },
        stdio: ['ignore', 'pipe', 'inherit']
      }
    );
    const line = await new Promise<string>((resolve, reject) => {
      let text = '';
      child.stdout.on('data', chunk => {
        text += String(chunk);
        if (text.includes('\n')) {
          resolve(text);
        }
      });
      child.once('exit', code => reject(new Error(`the hub ended with ${code}`)));
    });
    const started: unknown = JSON.parse(line);
    const { runtime_file, port } = started as { runtime_file: string; port: number };
    const { token } = JSON.parse(readFileSync(runtime_file, 'utf8')) as { token: string };
    return new RealHub(child, folder, port, token, shares);
  }

  /** Resolves when the process has ended. */
  get ended(): Promise<unknown> {
    return this.process.exitCode === null
      ? new Promise(resolve => this.process.once('exit', resolve))
      : Promise.resolve();
  }

  /** Opens sockets as a viewer in Node does. */
  opener(port = this.port, token = this.token): SocketFactory {
    return protocols =>
      new WebSocket(`ws://127.0.0.1:${port}`, protocols, {
        headers: { Authorization: `Bearer ${token}` },
        perMessageDeflate: false
      }) as unknown as IHubSocket;
  }

  /** End the process, and wait for it. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise(resolve => this.process.once('exit', resolve));
      this.process.kill(signal);
      await ended;
    }
    if (!this.sharesFolder) {
      rmSync(this.folder, { recursive: true, force: true });
    }
  }
}

/** A training process's side, as far as the wire sees it. */
export class RealProducer {
  private constructor(private readonly socket: WebSocket) {
    socket.on('message', (data, binary) => {
      if (!binary) {
        const message = decodeMessage(String(data));
        this.received.push(message);
        if (message.type === 'configure') {
          this.onConfigure?.(message);
        } else if (message.type === 'generate' || message.type === 'cancel') {
          this.onRequest?.(message);
        }
      }
    });
  }

  /** What the hub sent. */
  readonly received: Message[] = [];
  /** What is done when a viewer asks for a change. */
  onConfigure: ((message: Configure) => void) | null = null;
  /** What is done when a viewer has the model write, or ends that. */
  onRequest: ((message: Cancel | Generate) => void) | null = null;

  static async join(hub: RealHub, announce = announcement()): Promise<RealProducer> {
    const socket = new WebSocket(`ws://127.0.0.1:${hub.port}`, ['megalens.v2'], {
      headers: { Authorization: `Bearer ${hub.token}` },
      perMessageDeflate: false
    });
    const producer = new RealProducer(socket);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const peer = { name: 'tracer', version: '0.1.0' };
    producer.say({ type: 'join', protocol: 'megalens.v2', role: 'producer', peer });
    await until(
      () => producer.received.some(message => message.type === 'hello'),
      'the hub greets the producer'
    );
    producer.say(announce);
    return producer;
  }

  say(message: Message): void {
    this.socket.send(encodeMessage(message));
  }

  send(frame: Uint8Array): void {
    this.socket.send(frame);
  }

  /** Send one step: a loss, and one tensor of `size` values for each of two layers. */
  step(step: number, size = 8): void {
    this.send(lossFrame(step));
    this.send(tensorFrame(step, size));
  }

  /** The newest configure that the hub passed on. */
  configure(): Extract<Message, { type: 'configure' }> | undefined {
    return this.received.filter(message => message.type === 'configure').pop();
  }

  async close(): Promise<void> {
    if (this.socket.readyState !== WebSocket.CLOSED) {
      const closed = new Promise(resolve => this.socket.once('close', resolve));
      this.socket.close();
      await closed;
    }
  }
}

/** A road between viewer and hub that can be cut. */
export class Road {
  private constructor(private readonly server: Server) {}

  static async to(port: number): Promise<Road> {
    const road = new Road(createServer());
    road.server.on('connection', near => {
      const far = connect(port, '127.0.0.1');
      for (const socket of [near, far]) {
        road.sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => [near, far].forEach(end => end.destroy()));
      }
      near.pipe(far);
      far.pipe(near);
    });
    await new Promise<void>(resolve => road.server.listen(0, '127.0.0.1', resolve));
    return road;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  /** Cut every connection; new ones may come. */
  cut(): void {
    this.sockets.forEach(socket => socket.destroy());
    this.sockets.clear();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise(resolve => this.server.close(resolve));
  }

  private readonly sockets = new Set<Socket>();
}

/** What a producer of these tests announces. */
export function announcement(fixture = 'announce'): Announce {
  const text = readFileSync(join(ROOT, `protocol/fixtures/messages/${fixture}.json`), 'utf8');
  return decodeMessage(text, ['announce']);
}

// Reading the announcement takes longer than writing a frame.
let readable: ReturnType<typeof readableStreams> | undefined;

/** Two rows of a stream that this version does not know, as `announce-streams.json` declares it; the second is infinite at step 5. */
export function normsFrame(step: number): Uint8Array {
  const value = [step, step === 5 ? Infinity : step + 0.5];
  const row = { step: [step, step], name: ['embedding', 'lm_head'], value };
  readable ??= readableStreams(announcement('announce-streams').streams);
  return encodeFrame('weight_norms', row, { step }, readable);
}

/** One loss. */
export function lossFrame(step: number, value = 5 / step): Uint8Array {
  const row = {
    step: [step],
    time: [1.79e9 + step],
    rank: [0],
    name: ['loss'],
    value: [value],
    unit: ['nats/byte']
  };
  return encodeFrame('scalars', row, { step });
}

/** One tensor for each of two layers. */
export function tensorFrame(step: number, size = 8): Uint8Array {
  const two = <T>(value: T): T[] => [value, value];
  return encodeFrame(
    'tensors',
    {
      step: two(step),
      micro_batch: two(0),
      phase: two('train'),
      pass: two('forward'),
      rank: two(0),
      layer: [1, 2],
      flag: two('MLP1_mat_mul'),
      part: two(''),
      compressor: two("Tile(tiles=8, reduction='mean')"),
      source_shape: two([1, 1, size * 4]),
      shape: two([1, 1, size]),
      values: [new Float32Array(size).fill(step), new Float32Array(size).fill(-step)],
      labels: two([]),
      nan_count: two(0),
      inf_count: two(0),
      compression_error: [NaN, NaN],
      ...byName(['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max'], () => [NaN, NaN]),
      call: two(0)
    },
    { step }
  );
}
