import { AWAITED_INTERVAL, Pace } from '../../../../views/mount/drawing';
import { mountView } from '../../../../views/registry';
import { textRun } from './generated-text';

it('draws a text that is being written twice as often as other pictures', async () => {
  const run = textRun();
  const node = document.createElement('div');
  document.body.append(node);
  const view = await mountView(node, run, { view: 'tokens' }, { renderer: 'svg' });
  await view.settled();
  const request = jest.spyOn(Pace.prototype, 'request');
  run.changed.emit({ kind: 'rows', stream: 'tokens', firstStep: 1, lastStep: 2 });
  expect(request.mock.calls.map(([, least]) => least)).toContain(AWAITED_INTERVAL);
  request.mockRestore();
  await view.settled();
  view.dispose();
});
