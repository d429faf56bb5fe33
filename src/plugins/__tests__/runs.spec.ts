import type { JupyterFrontEnd } from '@jupyterlab/application';
import { runsPlugin } from '../runs';

it('has a report speak the language of JupyterLab, unless another was asked for', async () => {
  const asked: unknown[] = [];
  const serverSettings = {
    baseUrl: 'http://localhost/',
    wsUrl: 'ws://localhost/',
    init: {},
    Request,
    fetch: async (request: Request) => {
      asked.push(await request.json());
      return new Response('page');
    }
  };
  const app = { serviceManager: { user: { ready: Promise.resolve() }, serverSettings } };
  const translator = { languageCode: 'zh_CN' };
  const runs = await runsPlugin.activate(app as unknown as JupyterFrontEnd, translator);
  await runs.report('r1', { format: 'html', views: [] });
  await runs.report('r1', { format: 'html', views: [], language: 'en' });
  expect(asked).toEqual([
    { format: 'html', views: [], language: 'zh_CN' },
    { format: 'html', views: [], language: 'en' }
  ]);
});
