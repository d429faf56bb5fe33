/** @jest-environment ./jest.environment.node.js */
import { alarm, alarmRow } from '../../__tests__/alarm-rows';
import { readFileSync } from 'fs';
import type { ReactElement } from 'react';
import { slice } from '../..';
import { translatorOf, type Catalogue } from '../../../../page/language';
import { registerSlices } from '../../../../slice';
import { openAlarmPart } from '../alarm-part';
import type { Json } from '../../../../panel/shell/panel-host';
import { setUp } from '../../../../panel/shell/__tests__/memory-panel';

async function opened(notes?: Map<string, Json>, part = openAlarmPart) {
  const { model, host, runs, opened } = setUp([part], notes);
  await model.ready();
  const run = runs.opened.get('run-1');
  if (!run || !model.open) {
    throw new Error('no run was opened');
  }
  const [shown] = model.open.instruments;
  if (shown === undefined) {
    throw new Error('the run has no alarms');
  }
  /** Wait until so many alarms are known. */
  const read = async (count: number): Promise<void> => {
    while (shown.alarms !== count) {
      await new Promise<void>(done => {
        const heard = (): void => {
          shown.changed.disconnect(heard);
          done();
        };
        shown.changed.connect(heard);
      });
    }
  };
  return { model, host, run, part: shown, read, opened };
}

afterEach(() => jest.restoreAllMocks());

it('tells of the first anomaly once, and of later ones together after a minute', async () => {
  const { model, host, run, read } = await opened();
  const clock = jest.spyOn(Date, 'now').mockReturnValue(1_000_000);
  alarm(run, alarmRow({ step: 7, sentence: 'Values are lost.' }));
  await read(1);
  expect(host.alarm.mock.calls.map(([text]) => text)).toEqual([
    'gpt-demo: first anomaly at step 7. Values are lost.'
  ]);
  alarm(run, alarmRow({ step: 8 }), alarmRow({ step: 9 }));
  await read(3);
  expect(host.alarm).toHaveBeenCalledTimes(1);
  clock.mockReturnValue(1_000_000 + 60_000);
  alarm(run, alarmRow({ step: 10 }));
  await read(4);
  expect(host.alarm.mock.calls.map(([text]) => text).slice(1)).toEqual([
    'gpt-demo: 3 more alarms, the last at step 10.'
  ]);
  model.dispose();
});

it('tells of an alarm in one window of several, and not again after a reload', async () => {
  jest.spyOn(Date, 'now').mockReturnValue(1_000_000);
  const notes = new Map<string, Json>();
  const windows = [];
  for (let at = 0; at < 3; at++) {
    const each = await opened(notes);
    alarm(each.run, alarmRow({ step: 7 }), alarmRow({ step: 8 }));
    await each.read(2);
    windows.push(each);
  }
  expect(windows.map(({ host }) => host.alarm.mock.calls.length)).toEqual([1, 0, 0]);
  windows.forEach(({ model }) => model.dispose());
});

it('counts what followed from an alarm apart, and tells of nothing for it', async () => {
  const { model, host, run, part, read } = await opened();
  alarm(
    run,
    alarmRow({ step: 7, cause: 7, sentence: 'It rose.' }),
    ...[8, 9].map(step => alarmRow({ step, cause: 7, severity: 'note' })),
    alarmRow({ step: 9, severity: 'note' })
  );
  await read(1);
  expect(host.alarm).toHaveBeenCalledTimes(1);
  const line = part.render?.() as ReactElement<Record<string, unknown>, (props: unknown) => ReactElement>;
  expect(JSON.stringify(line.type(line.props))).toContain(
    '1 alarm, and 2 that followed: first at step 7, decoder.layers.1.mlp.linear_fc1.weight rms, rank 0 is 8, ' +
      '4 × what was expected'
  );
  model.dispose();
});

it('opens the view of alarms from the notification and from the panel', async () => {
  const { model, host, run, part, read, opened: views } = await opened();
  alarm(run, alarmRow({ step: 7 }));
  await read(1);
  host.alarm.mock.calls[0]?.[2]();
  (part.render?.() as ReactElement<{ open: () => void }>).props.open();
  expect(views).toEqual([
    ['run-1', { view: 'health' }],
    ['run-1', { view: 'health' }]
  ]);
  model.dispose();
});

it('counts what nobody looked at, in all windows', async () => {
  const notes = new Map<string, Json>();
  const { model, run, part, read } = await opened(notes);
  alarm(run, alarmRow({ step: 7 }), alarmRow({ step: 8 }));
  await read(2);
  await model.openView('health');
  expect(part.alarms).toBe(0);
  alarm(run, alarmRow({ step: 9 }));
  await read(1);
  const line = part.render?.() as ReactElement<Record<string, unknown>, (props: unknown) => ReactElement>;
  expect(JSON.stringify(line.type(line.props))).toContain('3 alarms (1 new): first at step 7');
  const other = await opened(notes);
  alarm(other.run, ...[7, 8, 9].map(step => alarmRow({ step })));
  await other.read(1);
  model.dispose();
  other.model.dispose();
});

it('tells nothing of notes, of muted alarms, where the setting is off, and of a recorded run', async () => {
  const { model, host, run, read, part } = await opened();
  const instruments = { monitor: { muted: [{ rule: 'dead' }] } };
  run.hello = run.hello && { ...run.hello, config: { ...run.hello.config, instruments } };
  alarm(run, alarmRow({ severity: 'note' }), alarmRow({ rule: 'dead' }));
  await read(0);
  expect(part.alarms).toBe(0);
  model.setting = () => false;
  alarm(run, alarmRow({ step: 9 }));
  await read(1);
  expect(part.alarms).toBe(1);
  model.setting = () => true;
  run.connect({ kind: 'recorded' });
  alarm(run, alarmRow({ step: 10 }));
  await read(2);
  expect(part.alarms).toBe(2);
  expect(host.alarm).not.toHaveBeenCalled();
  model.dispose();
});

it('says alarms in Chinese, in the panel and to whoever is told', async () => {
  const catalogue = JSON.parse(
    readFileSync('megalens/locale/zh_CN/LC_MESSAGES/megalens.json', 'utf-8')
  ) as Catalogue;
  registerSlices([slice]);
  const trans = translatorOf('zh-CN', catalogue).load('megalens');
  const { model, host, run, part, read } = await opened(undefined, given =>
    openAlarmPart({ ...given, trans })
  );
  const sentence = 'Its rms is 8, 4 times the 2 of the steps before.';
  alarm(run, alarmRow({ step: 7, sentence }));
  await read(1);
  const line = part.render?.() as ReactElement<Record<string, unknown>, (props: unknown) => ReactElement>;
  const shown = JSON.stringify(line.type(line.props).props);
  expect(shown).toContain('其 RMS 为 8，是之前各步 2 的 4 倍。');
  expect(shown).toContain('是预期的 4 倍');
  expect(host.alarm.mock.calls[0]?.[0]).toBe(
    'gpt-demo：首个异常在第 7 步。其 RMS 为 8，是之前各步 2 的 4 倍。'
  );
  model.dispose();
});
