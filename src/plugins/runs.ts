import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ITranslator } from '@jupyterlab/translation';
import { IMegalensRuns } from '../tokens';
import { version } from '../version';

/**
 * The runs of this Jupyter server: one connection per run and page, loaded when the first one is asked for.
 */
export const runsPlugin: JupyterFrontEndPlugin<IMegalensRuns> = {
  id: 'megalens:runs',
  description: 'Reaches training runs through the Jupyter server.',
  autoStart: true,
  provides: IMegalensRuns,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): IMegalensRuns => {
    const { user, serverSettings: settings } = app.serviceManager;
    const load = async () => {
      const [{ RunsApi }, { Runs }] = await Promise.all([
        import('../client/runs-api'),
        import('../store/runs'),
        user.ready.catch(() => undefined)
      ]);
      const api = new RunsApi({
        baseUrl: settings.baseUrl,
        // Without a cache mode of our own JupyterLab would add a time stamp to the query.
        fetch: (url, init) => ServerConnection.makeRequest(url, { cache: 'no-cache', ...init }, settings)
      });
      // The browser's cookie is the login; no token goes into the address.
      const openSocket = (id: string) => (protocols: string[]) =>
        new settings.WebSocket(
          URLExt.join(settings.wsUrl, 'megalens/ws/runs', encodeURIComponent(id)),
          protocols
        );
      const person = user.identity?.display_name ?? user.identity?.name;
      return {
        api,
        runs: new Runs({
          api,
          openSocket,
          peer: { name: 'panel', version, ...(person ? { user: person } : {}) }
        })
      };
    };
    let loading: ReturnType<typeof load> | undefined;
    const loaded = () => {
      // A failed load (the server was restarted meanwhile) is tried again.
      loading ??= load().catch(error => {
        loading = undefined;
        throw error;
      });
      return loading;
    };
    return {
      list: async () => (await (await loaded()).api.list()).runs,
      listAll: async () => (await loaded()).api.list(),
      describe: async (id, changes) => {
        await (await loaded()).api.describe(id, changes);
      },
      remove: async id => (await loaded()).api.remove(id),
      summaries: async () => (await loaded()).api.summaries(),
      courses: async request => (await loaded()).api.courses(request),
      connect: async (address, token, foreign) => (await loaded()).api.connectHub(address, token, foreign),
      openStatistics: async path => (await loaded()).api.openStatistics(path),
      report: async (id, request, signal) =>
        (await loaded()).api.report(id, { language: translator?.languageCode ?? 'en', ...request }, signal),
      demo: async action => (await loaded()).api.demo(action),
      acquire: async id => (await loaded()).runs.acquire(id)
    };
  }
};
