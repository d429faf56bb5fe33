import { RunsApi, type Dialect } from '../runs-api';

const ENTRY = { id: 'run-1', name: 'gpt', state: 'live', started: 1 };

/** What the server is asked when a hub is reached by address. */
async function asked(dialect?: Dialect): Promise<unknown> {
  let body: unknown;
  const api = new RunsApi({
    baseUrl: '/',
    fetch: async (_url, init) => {
      body = JSON.parse(String(init.body));
      return new Response(JSON.stringify(ENTRY));
    }
  });
  await api.connectHub('ws://127.0.0.1:5000', '', dialect);
  return body;
}

it('names the dialect of a peer’s hub to the server, and none for one of ours', async () => {
  expect(await asked('3606')).toEqual({ address: 'ws://127.0.0.1:5000', token: '', dialect: '3606' });
  expect(await asked('megalens')).toEqual({ address: 'ws://127.0.0.1:5000', token: '' });
  expect(await asked()).toEqual({ address: 'ws://127.0.0.1:5000', token: '' });
});
