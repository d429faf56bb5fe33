import type { Widget } from '@lumino/widgets';
import type { ViewOptions } from '../../protocol/views.generated';
import { openingOf, toCode, type IOpened } from '../../views/code';

/** As much of a kernel's connection as is used. */
export interface IKernel {
  readonly status: string;
  requestExecute(content: {
    code: string;
    silent: boolean;
    store_history: boolean;
    user_expressions: Readonly<Record<string, string>>;
  }): { readonly done: Promise<IExecuteReply>; dispose(): void };
}

/** As much of a kernel's answer as is read; a kernel may leave out anything of it. */
export interface IExecuteReply {
  readonly content: {
    readonly status: string;
    readonly user_expressions?: Readonly<
      Record<string, { readonly ename?: string; readonly data?: Readonly<Record<string, string>> }>
    >;
  };
}

export function isNotebook(widget: Widget | null | undefined): widget is Widget {
  return widget?.hasClass('jp-NotebookPanel') === true;
}

/**
 * Sources of a notebook's code cells, in order. The notebook's package is not asked for: nothing but these
 * few members is used, and a notebook without them (or something else) has no sources.
 */
export function codeOf(notebook: Widget | null): string[] {
  const cells = member(notebook, 'content', 'model', 'sharedModel', 'cells');
  return Array.isArray(cells)
    ? cells.flatMap((cell: unknown) => {
        const source = member(cell, 'source');
        return member(cell, 'cell_type') === 'code' && typeof source === 'string' ? [source] : [];
      })
    : [];
}

/** The connection to a notebook's kernel; null where it has none. */
export function kernelOf(notebook: Widget | null): IKernel | null {
  const kernel = member(notebook, 'sessionContext', 'session', 'kernel');
  return isKernel(kernel) ? kernel : null;
}

function isKernel(value: unknown): value is IKernel {
  return typeof member(value, 'requestExecute') === 'function';
}

function member(value: unknown, ...path: readonly string[]): unknown {
  // Members of JupyterLab's classes, getters of their prototypes among them; no name comes from outside.
  return path.reduce(
    (of, name) =>
      // eslint-disable-next-line megalens/own-names
      typeof of === 'object' && of !== null ? (of as Record<string, unknown>)[name] : undefined,
    value
  );
}

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

/**
 * Code of a cell that shows a view. It opens the view's own run, unless the kernel's `run` is known to be it;
 * a `run` that is, or may be, something else is left alone.
 * @param held - What the notebook has as `run`.
 */
export function viewCell(entry: IOpened, options: ViewOptions, kernelRun: KernelRun): string {
  if (kernelRun.kind === 'run' && kernelRun.id === entry.id) {
    return toCode(options);
  }
  const opening = openingOf(entry);
  return kernelRun.kind === 'free'
    ? `import megalens\n\nrun = ${opening}\n${toCode(options)}`
    : `import megalens\n\n${toCode(options, opening)}`;
}
