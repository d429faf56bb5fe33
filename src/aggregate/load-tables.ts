/** Tables of arquero, loaded on first use: a static import would cost every JupyterLab start 238 KB. A report, which makes no code from text, never does. */
export function loadTables(): Promise<typeof import('./group-table')> {
  loading ??= import('./group-table');
  return loading;
}

let loading: Promise<typeof import('./group-table')> | undefined;
