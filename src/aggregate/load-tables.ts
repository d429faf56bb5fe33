import { AggregateError } from './moment-merge';

/**
 * Tables of arquero, loaded on first use: a static import would cost every JupyterLab start 238 KB.
 * @throws AggregateError `frozen` where they cannot be had: a report may come without them.
 */
export function loadTables(): Promise<typeof import('./group-table')> {
  loading ??= import('./group-table').catch((cause: unknown) => {
    loading = undefined;
    throw new AggregateError(`Tables of arquero could not be loaded. ${String(cause)}`, 'frozen');
  });
  return loading;
}

let loading: Promise<typeof import('./group-table')> | undefined;
