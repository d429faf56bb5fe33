import type { Widget } from '@lumino/widgets';

/** Whether a widget of the main area is a notebook. */
export function isNotebook(widget: Widget | null | undefined): widget is Widget {
  return widget?.hasClass('jp-NotebookPanel') === true;
}

/**
 * Sources of a notebook's code cells, in order. The notebook's package is not asked for: nothing but these few members is used, and a
 * notebook without them (or something else) has no sources.
 */
export function codeOf(notebook: Widget | null): string[] {
  const model = member(member(notebook, 'content'), 'model');
  const cells = member(member(model, 'sharedModel'), 'cells');
  return Array.isArray(cells)
    ? cells.flatMap((cell: unknown) => {
        const source = member(cell, 'source');
        return member(cell, 'cell_type') === 'code' && typeof source === 'string' ? [source] : [];
      })
    : [];
}

function member(value: unknown, name: string): unknown {
  // Members of JupyterLab's classes, getters of their prototypes among them; no name comes from outside.
  // eslint-disable-next-line megalens/own-names
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}
