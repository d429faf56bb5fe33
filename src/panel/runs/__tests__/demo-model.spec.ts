/** @jest-environment ./jest.environment.node.js */
import type { DemoState, DemoAction } from '../../../client/runs-api';
import { ClientError } from '../../../client/rest';
import { DemoModel } from '../demo-model';

describe('DemoModel', () => {
  let asked: DemoAction[];
  let answer: DemoState | Error;
  let appeared: number;
  let demo: DemoModel;

  beforeEach(() => {
    jest.useFakeTimers();
    [asked, answer, appeared] = [[], { kind: 'idle' }, 0];
    demo = new DemoModel(
      {
        demo: request => {
          asked.push(request);
          return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
        }
      },
      () => (appeared += 1)
    );
  });

  afterEach(() => {
    demo.dispose();
    jest.useRealTimers();
  });

  const second = (): Promise<void> => jest.advanceTimersByTimeAsync(1001);

  it('asks once when it is looked at, and no more while nothing happens', async () => {
    demo.watching = true;
    await second();
    await second();
    expect(asked).toEqual(['look']);
    expect(demo.state).toEqual({ kind: 'idle' });
  });

  it('follows a start until the run is there, and says so once', async () => {
    demo.watching = true;
    await second();
    answer = { kind: 'starting' };
    const started = demo.start();
    expect(demo.state).toEqual({ kind: 'starting' });
    await started;
    await second();
    answer = { kind: 'running', run: 'r' };
    await second();
    await second();
    expect(asked).toEqual(['look', 'start', 'look', 'look', 'look']);
    expect(appeared).toBe(1);
  });

  it('shows why a start failed, the server’s refusal too', async () => {
    answer = { kind: 'failed', message: 'no torch here' };
    await demo.start();
    expect(demo.state).toEqual(answer);
    answer = new ClientError('refused', 'This server may not start the demo.', { status: 403 });
    await demo.start();
    expect(demo.state).toEqual({ kind: 'failed', message: 'This server may not start the demo.' });
  });

  it('leaves it to the list of runs to say that the server does not answer', async () => {
    answer = new ClientError('unreachable', 'No answer.');
    demo.watching = true;
    await second();
    expect(demo.state).toEqual({ kind: 'off' });
  });

  it('is idle once it was stopped', async () => {
    answer = { kind: 'running', run: 'r' };
    await demo.start();
    answer = { kind: 'idle' };
    await demo.stop();
    expect(demo.state).toEqual({ kind: 'idle' });
    expect(asked).toEqual(['start', 'stop']);
  });

  it('asks nothing while it is not looked at, and nothing after its end', async () => {
    answer = { kind: 'running', run: 'r' };
    demo.watching = true;
    await second();
    demo.watching = false;
    const before = asked.length;
    await second();
    expect(asked).toHaveLength(before);
    demo.dispose();
    demo.dispose();
    demo.watching = true;
    await second();
    expect(asked).toHaveLength(before);
  });
});
