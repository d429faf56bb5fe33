import { nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { ClientError } from '../../../client/rest';
import type { IRunEntry } from '../../../tokens';
import { Body } from '../../shell/dialogs';
import { LIVE, OLD, setUp, STATISTICS } from '../../shell/__tests__/memory-panel';
import { until } from '../../shell/__tests__/shown-panel';
import { beyondNewest } from '../keep-newest';
import { KeepNewestForm } from '../run-dialogs';

/** Recordings of 1 GB each, of which `started` tells the age. */
const recording = (id: string, started: number, more: Partial<IRunEntry> = {}): IRunEntry => ({
  ...OLD,
  id,
  name: id,
  started,
  bytes: 1e9,
  ...more
});
const RUNS = [
  { ...LIVE, bytes: 1e9, started: 1 },
  { ...LIVE, id: 'ended', ended: 5, bytes: 1e9, started: 2 },
  STATISTICS,
  recording('c', 30),
  recording('a', 10, { state: 'gone' }),
  recording('tagged', 5, { tags: ['baseline'] }),
  recording('noted', 4, { notes: 'keep this' }),
  recording('d', 40),
  recording('b', 20)
];
const ids = (runs: readonly IRunEntry[]): string[] => runs.map(({ id }) => id);

describe('keeping the newest recordings', () => {
  it('takes the oldest, and neither what is live nor what has no recording', () => {
    expect(ids(beyondNewest(RUNS, 2))).toEqual(['b', 'a', 'tagged', 'noted']);
    expect(ids(beyondNewest(RUNS, 0))).toEqual(['d', 'c', 'b', 'a', 'tagged', 'noted']);
    expect(beyondNewest(RUNS, 99)).toEqual([]);
  });

  it('names what goes and its size, and asks before it takes what somebody wrote to', async () => {
    let doomed: readonly IRunEntry[] = [];
    const trans = nullTranslator.load('megalens');
    const body = new Body(<KeepNewestForm runs={RUNS} trans={trans} change={now => (doomed = now)} />);
    Widget.attach(body, document.body);
    const listed = (): string[] =>
      [...body.node.querySelectorAll('li')].map(each => each.textContent?.replace(/\s/g, ' ') ?? '');
    await until(() => body.node.querySelector('[role=status]')?.textContent === 'Nothing is deleted.');
    const input = body.node.querySelector('input[type=number]') as HTMLInputElement;
    const type = (text: string): void => {
      Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')?.set?.call(input, text);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    };
    type('3');
    await until(() => listed().length === 1);
    expect(listed()).toEqual(['a 1 GB']);
    expect(ids(doomed)).toEqual(['a']);
    expect(body.node.querySelector('[role=status]')?.textContent).toMatch(/one recording of 1\s?GB/);
    (body.node.querySelector('input[type=checkbox]') as HTMLElement).click();
    await until(() => listed().length === 3);
    expect(body.node.querySelector('[role=status]')?.textContent).toMatch(/3 recordings of 3\s?GB/);
    expect(ids(doomed)).toEqual(['a', 'tagged', 'noted']);
    type('-1');
    await until(() => listed().length === 0);
    expect(doomed).toEqual([]);
    body.dispose();
  });

  it('deletes them one by one, and tells each that could not be deleted with its reason', async () => {
    const { model, runs, host } = setUp();
    runs.entries = RUNS;
    await model.ready();
    const remove = runs.remove.bind(runs);
    const reasons = new Map([
      ['tagged', 'Could not delete the recording: Permission denied.'],
      ['noted', 'Only folders that lie in the run folders of this server are deleted, and no links.']
    ]);
    runs.remove = async id => {
      const reason = reasons.get(id);
      if (reason !== undefined) {
        throw new ClientError('refused', reason, { status: 409 });
      }
      return remove(id);
    };
    await model.actions.keepNewest();
    expect(host.tell).toHaveBeenCalledTimes(1);
    expect(host.tell).toHaveBeenCalledWith(
      '2 of 3 recordings could not be deleted',
      [...reasons].map(([id, reason]) => `${id}: ${reason}`).join('\n')
    );
    expect(ids(runs.entries)).toEqual(ids(RUNS).filter(id => id !== 'a'));
    host.askKeepNewest.mockResolvedValueOnce([]);
    await model.actions.keepNewest();
    expect(ids(runs.entries)).toHaveLength(RUNS.length - 1);
    model.dispose();
  });
});
