/** @jest-environment node */
import { alarmRow } from '../../../../store/__tests__/memory-run';
import { setUp } from '../../../../panel/shell/__tests__/memory-panel';

async function opened() {
  const { model, host, runs, opened } = setUp();
  await model.ready();
  const run = runs.opened.get('run-1');
  if (!run || !model.open) {
    throw new Error('no run was opened');
  }
  const { alarms } = model.open;
  /** Wait until so many alarms are known. */
  const read = async (count: number): Promise<void> => {
    while (alarms.alarms.length !== count) {
      await new Promise<void>(done => {
        const heard = (): void => {
          alarms.changed.disconnect(heard);
          done();
        };
        alarms.changed.connect(heard);
      });
    }
  };
  return { model, host, run, alarms, read, opened };
}

afterEach(() => jest.restoreAllMocks());

it('tells of the first anomaly once, and of later ones together after a minute', async () => {
  const { model, host, run, read } = await opened();
  const clock = jest.spyOn(Date, 'now').mockReturnValue(1_000_000);
  run.alarm(alarmRow({ step: 7, sentence: 'Values are lost.' }));
  await read(1);
  expect(host.alarm.mock.calls.map(([text]) => text)).toEqual([
    'gpt-demo: first anomaly at step 7. Values are lost.'
  ]);
  run.alarm(alarmRow({ step: 8 }), alarmRow({ step: 9 }));
  await read(3);
  expect(host.alarm).toHaveBeenCalledTimes(1);
  clock.mockReturnValue(1_000_000 + 60_000);
  run.alarm(alarmRow({ step: 10 }));
  await read(4);
  expect(host.alarm.mock.calls.map(([text]) => text).slice(1)).toEqual([
    'gpt-demo: 3 more alarms, the last at step 10.'
  ]);
  model.dispose();
});

it('opens the view of alarms from the notification and from the panel', async () => {
  const { model, host, run, read, opened: views } = await opened();
  run.alarm(alarmRow({ step: 7 }));
  await read(1);
  host.alarm.mock.calls[0]?.[1]();
  await model.openAlarms();
  expect(views).toEqual([
    ['run-1', { view: 'health' }],
    ['run-1', { view: 'health' }]
  ]);
  model.dispose();
});

it('tells nothing of notes, of muted alarms, where the setting is off, and of a recorded run', async () => {
  const { model, host, run, read, alarms } = await opened();
  const instruments = { monitor: { muted: [{ rule: 'dead' }] } };
  run.hello = run.hello && { ...run.hello, config: { ...run.hello.config, instruments } };
  run.alarm(alarmRow({ severity: 'note' }), alarmRow({ rule: 'dead' }));
  await read(0);
  expect(alarms.alarms).toEqual([]);
  model.news.isOn = false;
  run.alarm(alarmRow({ step: 9 }));
  await read(1);
  expect(alarms.alarms).toHaveLength(1);
  model.news.isOn = true;
  run.connect({ kind: 'recorded' });
  run.alarm(alarmRow({ step: 10 }));
  await read(2);
  expect(alarms.alarms).toHaveLength(2);
  expect(host.alarm).not.toHaveBeenCalled();
  model.dispose();
});
