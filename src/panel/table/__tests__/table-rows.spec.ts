/** @jest-environment ./jest.environment.node.js */
import type { RunSetting } from '../../../client/runs-api';
import type { IRunEntry, IRunSummary } from '../../../tokens';
import {
  formatDuration,
  differing,
  filtered,
  groupsOf,
  ordered,
  tableRows,
  type IOrder
} from '../table-rows';

const entry = (id: string, more: Partial<IRunEntry> = {}): IRunEntry => ({
  id,
  name: id,
  state: 'recorded',
  started: 1000,
  ended: 1060,
  step: 10,
  folder: null,
  ...more
});
const ENTRIES = [
  entry('a', { tags: ['baseline'], started: 3000, ended: null, state: 'live', step: 7 }),
  entry('b', { notes: 'too hot', ended: 1000 + 3 * 3600, bytes: 50, step: null }),
  entry('c', { state: 'gone', ended: null })
];
const summary = (value: number | null, settings: Record<string, RunSetting>): IRunSummary => ({
  loss: value === null ? null : { name: 'loss', step: 9, value },
  settings: new Map(Object.entries(settings))
});
const SUMMARIES = new Map([
  ['b', summary(2.5, { 'versions.torch': '2.6', 'model.layers': 4, 'layout.tp': 1, 'model.hidden': 64 })],
  ['c', summary(NaN, { 'versions.torch': '2.7', 'model.layers': 8, 'layout.tp': 1 })]
]);
const ROWS = tableRows(ENTRIES, SUMMARIES, ({ state }) => state, 3100);
const ids = (rows: readonly { entry: IRunEntry }[]): string => rows.map(row => row.entry.id).join('');
const by = (column: IOrder['by'], descending = false): string =>
  ids(ordered(ROWS, { by: column, descending }));

describe('rows of the table of runs', () => {
  it('are grouped by tags and by settings, also those that have none', () => {
    expect(groupsOf(ROWS, { setting: 'model.layers' }, 'none')).toEqual([
      { name: '4', runs: [1] },
      { name: '8', runs: [2] },
      { name: 'none', runs: [0] }
    ]);
    const many = Array.from({ length: 200 }, (_, at) => ({
      entry: entry(`${at}`, { tags: at % 2 ? [`t${at % 100}`, 'odd'] : [] }),
      settings: new Map()
    }));
    const groups = groupsOf(many, 'tags', 'none');
    expect(groups).toHaveLength(24);
    expect(groups.slice(0, 3).map(({ name, runs }) => [name, runs.length])).toEqual([
      ['none', 100],
      ['odd', 100],
      ['t1', 2]
    ]);
  });

  it('tell how long a run took, and nothing where nobody knows its end', () => {
    expect(ROWS.map(({ duration }) => duration)).toEqual([100, 10800, NaN]);
    expect([12, 720, 3 * 3600 + 300, 52 * 3600].map(formatDuration)).toEqual([
      '12\u00a0s',
      '12\u00a0min',
      '3\u00a0h 05\u00a0min',
      '2\u00a0d 4\u00a0h'
    ]);
  });

  it('are ordered by any column, those without a value last whichever way', () => {
    expect(by('started')).toBe('bca');
    expect(by('started', true)).toBe('abc');
    expect(by('step')).toBe('acb');
    expect(by('step', true)).toBe('cab');
    // NaN is worse than any loss.
    expect(by('loss')).toBe('bca');
    expect(by('loss', true)).toBe('cba');
    expect(by('duration', true)).toBe('bac');
    expect(by('bytes')).toBe('bac');
    expect(by({ setting: 'model.layers' }, true)).toBe('cba');
    expect(by({ setting: 'model.hidden' })).toBe('bac');
  });

  it('are filtered by words in whatever is told of a run', () => {
    expect(ids(filtered(ROWS, ''))).toBe('abc');
    expect(ids(filtered(ROWS, ' BASE '))).toBe('a');
    expect(ids(filtered(ROWS, 'hot recorded'))).toBe('b');
    expect(ids(filtered(ROWS, 'model.layers=8'))).toBe('c');
    expect(ids(filtered(ROWS, 'hot gone'))).toBe('');
  });

  it('name the settings in which the runs differ, versions last, and say nothing of a run without settings', () => {
    expect(differing(ROWS)).toEqual(['model.layers', 'model.hidden', 'versions.torch']);
    expect(differing(ROWS.slice(0, 2))).toEqual([]);
  });
});
