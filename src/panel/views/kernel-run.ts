import type { Widget } from '@lumino/widgets';
import { codeOf, kernelOf } from './notebooks';

/** What a notebook has as `run`: a run of Megalens, nothing, or something of which no more is known. */
export type KernelRun =
  { readonly kind: 'run'; readonly id: string } | { readonly kind: 'free' } | { readonly kind: 'taken' };

/** Evaluated in the kernel: an id, or None for what is no run of ours. Does not touch a foreign `run`. */
const ASKED = 'run.id if type(run).__module__.partition(".")[0] == "megalens" else None';
/** What binds the name, or may, arguments included: a false positive only makes the cell open its own run. */
const BOUND = /(?<![.\w])run\s*(?:,[^=\n]*)?(?::[^=\n]*)?(?:=(?!=)|:=)|\b(?:as|for|import|def|class)\s+run\b/;
/** A kernel that takes longer has other things to do. */
const ASK_MS = 500;

/** What a notebook's cells say of `run`: no more than whether one of them may bind it. */
export function runInCells(notebook: Widget | null): KernelRun {
  return { kind: codeOf(notebook).some(cell => BOUND.test(cell)) ? 'taken' : 'free' };
}

/**
 * Find out what a notebook has as `run`. Its kernel is asked, where it is idle: code says what a cell
 * assigned when it ran last, or will when it runs next, and a name of a run or "the newest" was another one
 * then. Where there is no answer the name is free if no cell binds it.
 */
export async function kernelRun(notebook: Widget | null): Promise<KernelRun> {
  const bound = runInCells(notebook);
  const kernel = kernelOf(notebook);
  if (kernel?.status !== 'idle') {
    return bound;
  }
  const future = kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    user_expressions: { run: ASKED }
  });
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    const late = new Promise<null>(resolve => (timer = setTimeout(() => resolve(null), ASK_MS)));
    const reply = await Promise.race([future.done, late]);
    const content = reply?.content;
    const answer = content?.status === 'ok' ? content.user_expressions?.['run'] : undefined;
    if (answer === undefined || answer.ename === 'NameError') {
      return bound;
    }
    const id = /^'([\w.-]+)'$/.exec(answer.data?.['text/plain'] ?? '')?.[1];
    return id === undefined ? { kind: 'taken' } : { kind: 'run', id };
  } catch {
    return bound;
  } finally {
    clearTimeout(timer);
    future.dispose();
  }
}
