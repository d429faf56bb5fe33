import { kernelRun } from '../kernel-run';
import { FakeNotebook, fakeKernel } from './fake-notebook';

const OPENED = ['import megalens\nrun = megalens.connect()  # the newest one'];

afterEach(() => {
  jest.useRealTimers();
  document.body.replaceChildren();
});

describe('what a notebook has as its run', () => {
  it('is what the kernel says, whatever the cells say', async () => {
    const kernel = fakeKernel({ data: "'20261120-1'" });
    expect(await kernelRun(new FakeNotebook(OPENED, kernel))).toEqual({ kind: 'run', id: '20261120-1' });
    expect(await kernelRun(new FakeNotebook([], kernel))).toEqual({ kind: 'run', id: '20261120-1' });
    // Nothing is executed, and nothing is left behind.
    expect(kernel.asked[0]).toMatch(/^run\.id if /);
    expect(kernel.ended).toBe(2);
  });

  it.each(['None', "'an\\'other'", '17'])('is taken by what is no run: %s', async data => {
    expect(await kernelRun(new FakeNotebook([], fakeKernel({ data })))).toEqual({ kind: 'taken' });
  });

  it('is free where the kernel has none and no cell binds the name', async () => {
    const kernel = fakeKernel({ ename: 'NameError' });
    expect(await kernelRun(new FakeNotebook(['x = 1', 'rerun = run_all(prun)'], kernel))).toEqual({
      kind: 'free'
    });
    expect(await kernelRun(new FakeNotebook(OPENED, kernel))).toEqual({ kind: 'taken' });
  });

  it.each([
    'run = 5',
    'run: int = 5',
    'run, other = a, b',
    'for run in runs:',
    'with open(x) as run:',
    'from mine import run',
    'def run(): ...',
    '(run := 5)'
  ])('may be taken by a cell that says %s', async cell => {
    expect(await kernelRun(new FakeNotebook([cell]))).toEqual({ kind: 'taken' });
    expect(await kernelRun(new FakeNotebook([cell], fakeKernel('busy')))).toEqual({ kind: 'taken' });
  });

  it('is not waited for long', async () => {
    jest.useFakeTimers();
    const kernel = fakeKernel('never');
    const held = kernelRun(new FakeNotebook(OPENED, kernel));
    await jest.advanceTimersByTimeAsync(500);
    expect(await held).toEqual({ kind: 'taken' });
    expect(kernel.ended).toBe(1);
  });

  it('is free where there is no notebook', async () => {
    expect(await kernelRun(null)).toEqual({ kind: 'free' });
  });
});
