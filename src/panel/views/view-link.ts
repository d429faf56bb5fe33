import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { isRunId } from '../../client/runs-api';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IViewReference } from '../../tokens';

const PARAMETER = 'megalens-view';

/** What the address of a page that is to show a view has in it. */
export const IN_ADDRESS = new RegExp(`[?&]${PARAMETER}=`);

/**
 * The address of a view as it is now. Under a JupyterHub it leads everybody to a server of their own, which
 * shows the view where it knows the run.
 */
export function viewLink({ run, options }: IViewReference): string {
  const prefix = PageConfig.getOption('hubPrefix');
  const host = PageConfig.getOption('hubHost') || window.location.origin;
  const page =
    prefix === ''
      ? URLExt.join(PageConfig.getBaseUrl(), 'lab')
      : `${host}${URLExt.join(prefix, 'user-redirect/lab')}`;
  return `${page}?${PARAMETER}=${encodeURIComponent(JSON.stringify({ run, options }))}`;
}

/** The view of an address; null where it names none. What its options say is checked when it is shown. */
export function linkedView(search: string): IViewReference | null {
  try {
    const { run, options } = JSON.parse(new URLSearchParams(search).get(PARAMETER) ?? 'null') as {
      run: unknown;
      options: Partial<ViewOptions> | null;
    };
    return isRunId(run) && typeof options?.view === 'string'
      ? { run, options: options as ViewOptions }
      : null;
  } catch {
    return null;
  }
}

/** The rest of an address that named a view. */
export function withoutView(search: string): string {
  const rest = new URLSearchParams(search);
  rest.delete(PARAMETER);
  return rest.size > 0 ? `?${rest.toString()}` : '';
}
