import { AWAITED_INTERVAL, Pace } from '../../../../views/mount/drawing';
import { textRun } from './generated-text';
import { showView } from '../../../../views/__tests__/page';

it('draws a text that is being written twice as often as other pictures', async () => {
  const run = textRun();
  const view = await showView(run, { view: 'tokens' });
  const request = jest.spyOn(Pace.prototype, 'request');
  run.changed.emit({ kind: 'rows', stream: 'tokens', firstStep: 1, lastStep: 2 });
  expect(request.mock.calls.map(([, least]) => least)).toContain(AWAITED_INTERVAL);
  request.mockRestore();
  await view.settled();
});
