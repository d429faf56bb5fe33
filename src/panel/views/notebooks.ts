import type { Widget } from '@lumino/widgets';

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
