import { fullViewOptions, ProtocolError } from '../../protocol';
import { ViewHost } from '../view-host';
import { MemoryRuns, plainMount, settled } from './fake-view';

it('refuses options from outside that the contract does not know, and keeps those that are drawn', async () => {
  const mount = plainMount();
  const host = new ViewHost({
    runs: new MemoryRuns(),
    run: { id: 'r1', name: 'gpt-demo', folder: null },
    options: fullViewOptions({ view: 'statistics', kind: 'lines' }),
    mount
  });
  await settled();
  const drawn = host.options;
  const wrong = (): void => host.setOptions({ view: 'statistics', where: { role: 'output' } });
  expect(wrong).toThrow(ProtocolError);
  expect(wrong).toThrow(/where\.role/);
  expect(host.options).toBe(drawn);
  expect(mount.views[0]!.options).toEqual(drawn);
  host.setOptions({ view: 'statistics', where: { role: ['output'] } });
  expect(mount.views[0]!.options).toEqual(
    fullViewOptions({ view: 'statistics', where: { role: ['output'] } })
  );
  host.dispose();
});
