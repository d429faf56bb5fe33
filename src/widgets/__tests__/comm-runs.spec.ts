/** @jest-environment ./jest.environment.node.js */
import { CommRuns, type ICommModel } from '../comm-runs';

/** A widget's model: what the page sent, and how the kernel answers. */
class Kernel implements ICommModel {
  readonly sent: Record<string, unknown>[] = [];
  get(): unknown {
    return undefined;
  }
  set(): void {
    return undefined;
  }
  save_changes(): void {
    return undefined;
  }
  on(_event: string, callback: (...args: never[]) => void): void {
    this.hear = callback as unknown as Kernel['hear'];
  }
  off(): void {
    this.hear = null;
  }
  send(content: unknown): void {
    this.sent.push(content as Record<string, unknown>);
  }
  hear: ((content: unknown, buffers?: DataView[]) => void) | null = null;
}

const ENTRY = { id: 'r1', name: 'gpt', state: 'live', started: 1 };

it('takes the answers to its own questions only, whatever else comes', async () => {
  const kernel = new Kernel();
  const listed = new CommRuns(kernel).list();
  const [{ ask, method }] = kernel.sent as [Record<string, unknown>];
  expect(method).toBe('runs');
  for (const content of [
    null,
    3,
    'x',
    { ask: 'another-1', json: {} },
    { ask: 3 },
    { socket: 'x', said: [{ text: 1 }, 3] },
    { socket: 'x', said: 3 }
  ]) {
    kernel.hear?.(content);
  }
  kernel.hear?.({ ask, json: { runs: [ENTRY], warnings: [] } });
  expect((await listed).map(({ id }) => id)).toEqual(['r1']);
});

it('asks for translations where the browser speaks another language first, and for none in English', async () => {
  const kernel = new Kernel();
  expect(await new CommRuns(kernel).words(['en-GB', 'zh-CN'])).toEqual({});
  expect(kernel.sent).toEqual([]);
  const asked = new CommRuns(kernel).words(['zh-CN', 'en']);
  const [{ ask, ...question }] = kernel.sent as [Record<string, unknown>];
  expect(question).toEqual({ method: 'words', body: { accepted: 'zh-CN,en' } });
  kernel.hear?.({ ask, json: { locale: 'zh_CN', words: { Layers: '层' } } });
  expect(await asked).toEqual({ Layers: '层' });
});

it('rejects what the kernel refuses in its words, and what waits when it is closed', async () => {
  const kernel = new Kernel();
  const runs = new CommRuns(kernel);
  const refused = runs.acquire('r2');
  const refusal = { code: 'not-found', message: 'There is no run r2.', field: null };
  kernel.hear?.({ ask: kernel.sent[0]?.['ask'], refusal });
  await expect(refused).rejects.toMatchObject({ code: 'gone', message: 'There is no run r2.' });
  const waiting = runs.list();
  runs.dispose();
  await expect(waiting).rejects.toMatchObject({ code: 'disposed' });
});

it('says that the kernel is late until it answers, and nothing of it once it is closed', async () => {
  jest.useFakeTimers();
  const [kernel, late] = [new Kernel(), jest.fn()];
  const runs = new CommRuns(kernel, late);
  const listed = runs.list();
  jest.advanceTimersByTime(3999);
  expect(late).not.toHaveBeenCalled();
  jest.advanceTimersByTime(1);
  expect(late.mock.calls).toEqual([[true]]);
  kernel.hear?.({ ask: kernel.sent[0]?.['ask'], json: { runs: [], warnings: [] } });
  expect(late.mock.calls).toEqual([[true], [false]]);
  await listed;
  runs.list().catch(() => undefined);
  runs.dispose();
  jest.advanceTimersByTime(10_000);
  expect(late).toHaveBeenCalledTimes(2);
  jest.useRealTimers();
});

it('joins the hub of a live run by a socket that the kernel holds, says what it took, and leaves', async () => {
  const kernel = new Kernel();
  const runs = new CommRuns(kernel);
  const acquired = runs.acquire('r1');
  kernel.hear?.({ ask: kernel.sent[0]?.['ask'], json: ENTRY });
  const { source, dispose } = await acquired;
  expect(source.connection.kind).toBe('connecting');
  const { socket } = kernel.sent.find(each => 'socket' in each) ?? {};
  expect(kernel.sent).toContainEqual({ socket, run: 'r1' });
  kernel.hear?.({ socket, said: [{ open: true }] });
  expect(JSON.parse(String(kernel.sent[kernel.sent.length - 1]?.['text']))).toMatchObject({ type: 'join' });
  kernel.hear?.({ socket, said: [{ text: ' '.repeat(1_100_000) }, { open: 1 }] });
  expect(kernel.sent).toContainEqual({ socket, took: 1_100_000 });
  dispose();
  runs.dispose();
  expect(kernel.sent).toContainEqual({ socket, close: true });
});
