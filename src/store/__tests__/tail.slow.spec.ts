import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RealHub, RealProducer, until } from '../../client/__tests__/real-hub';

interface IRunning {
  readonly out: () => string;
  readonly errors: () => string;
  readonly code: Promise<number | null>;
  stop(): void;
}

function tail(args: string[], runtimeFolder: string): IRunning {
  const child = spawn(process.execPath, ['scripts/tail.mjs', ...args], {
    cwd: join(__dirname, '../../..'),
    env: { ...process.env, MEGALENS_RUNTIME_DIR: runtimeFolder },
    stdio: ['ignore', 'pipe', 'pipe']
  });
  let out = '';
  let errors = '';
  child.stdout.on('data', chunk => (out += String(chunk)));
  child.stderr.on('data', chunk => (errors += String(chunk)));
  const code = new Promise<number | null>(resolve => child.once('exit', resolve));
  return { out: () => out, errors: () => errors, code, stop: () => child.kill('SIGINT') };
}

describe('npm run tail', () => {
  let hub: RealHub;
  let producer: RealProducer;
  const empty = mkdtempSync(join(tmpdir(), 'megalens-empty-'));

  beforeAll(async () => {
    hub = await RealHub.start();
    producer = await RealProducer.join(hub);
    producer.step(1);
  });

  afterAll(async () => {
    await producer.close();
    await hub.stop();
    rmSync(empty, { recursive: true });
  });

  it('refuses arguments that it does not know, and says when no hub runs', async () => {
    const wrong = tail(['nonsense'], empty);
    expect(await wrong.code).toBe(2);
    expect(wrong.errors()).toMatch(/Usage: npm run tail/);
    const none = tail([], empty);
    expect(await none.code).toBe(2);
    expect(none.errors()).toMatch(/No hub runs here now/);
  });

  it('says that a token was refused', async () => {
    const file = join(empty, 'token');
    writeFileSync(file, 'wrong');
    const refused = tail([`ws://127.0.0.1:${hub.port}`, '--token-file', file], empty);
    expect(await refused.code).toBe(1);
    expect(refused.errors()).toMatch(/refused the token/);
    expect(refused.errors()).not.toContain('wrong');
  });

  it('prints one line a step when piped, for the newest hub, until the run is finished', async () => {
    const running = tail([], hub.folder);
    // A line is printed once the next step has begun.
    let step = 1;
    await until(() => {
      step += 1;
      producer.step(step);
      return running.out().includes('step 1 ');
    }, 'the first line');
    producer.say({ type: 'goodbye', reason: 'finished' });
    expect(await running.code).toBe(0);
    const lines = running.out().trim().split('\n');
    expect(lines[0]).toBe('step 1  loss 5 nats/byte  2 tensors 0.0625 KiB');
    expect(lines).toHaveLength(step + 1);
    expect(lines[step]).toMatch(/^gpt-demo finished at step/);
    expect(running.errors()).toBe('');
  });
});
