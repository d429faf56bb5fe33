import { Notification } from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { isRunId } from '../../client/runs-api';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IViewReference } from '../../tokens';

const PARAMETER = 'megalens-view';

/**
 * The address of a view as it is now. Under a JupyterHub it leads everybody to a server of their own, which
 * shows the view where it knows the run.
 */
export function viewLink(view: IViewReference): string {
  const prefix = PageConfig.getOption('hubPrefix');
  const host = PageConfig.getOption('hubHost') || window.location.origin;
  const server = prefix === '' ? PageConfig.getBaseUrl() : `${host}${URLExt.join(prefix, 'user-redirect/')}`;
  // The extension's own page says in its address what it shows.
  return PageConfig.getOption('megalens') === ''
    ? `${server}lab?${PARAMETER}=${encodeURIComponent(JSON.stringify(view))}`
    : `${server}${pagePath({ views: [view] })}`;
}

/** What a page of our own shows: views, and the table of all runs. */
export interface IPageContent {
  readonly views: readonly IViewReference[];
  readonly table?: boolean;
}

/** The path of a page that shows this, below the server's base URL. The server sees run and view alone. */
export function pagePath(content: IPageContent): string {
  const [first] = content.views;
  const view = first && ['view', first.run, first.options.view].map(encodeURIComponent);
  return `${['megalens', ...(view ?? [''])].join('/')}#${encodeURIComponent(JSON.stringify(content))}`;
}

/** Open such a page in a tab of the browser, and offer it where the browser does not let it open. */
export function openPage(content: IPageContent, trans: TranslationBundle): void {
  if (window.open(`${PageConfig.getBaseUrl()}${pagePath(content)}`, '_blank') === null) {
    const callback = () => openPage(content, trans);
    Notification.warning(trans.__('The browser did not let a page open.'), {
      autoClose: false,
      actions: [{ label: trans.__('Open the page'), callback }]
    });
  }
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
