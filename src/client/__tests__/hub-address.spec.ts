/** @jest-environment ./jest.environment.node.js */
import { RunsApi, type IForeignHub } from '../runs-api';

const ENTRY = { id: 'run-1', name: 'gpt', state: 'live', started: 1 };

/** What the server is asked when a hub is reached by address. */
async function asked(token: string, foreign?: IForeignHub | null): Promise<unknown> {
  let body: unknown;
  const api = new RunsApi({
    baseUrl: '/',
    fetch: async (_url, init) => {
      body = JSON.parse(String(init.body));
      return new Response(JSON.stringify(ENTRY));
    }
  });
  await api.connectHub('ws://127.0.0.1:5000', token, foreign);
  return body;
}

it('gives the server the token of one of our hubs, and the dialect of a peer’s', async () => {
  const address = 'ws://127.0.0.1:5000';
  expect(await asked('t')).toEqual({ address, token: 't' });
  expect(await asked('t', null)).toEqual({ address, token: 't' });
  expect(await asked('', { dialect: '3606' })).toEqual({ address, dialect: '3606' });
  expect(await asked('', { dialect: 'inference', prompts: ['So'] })).toEqual({
    address,
    dialect: 'inference',
    prompts: ['So']
  });
});
