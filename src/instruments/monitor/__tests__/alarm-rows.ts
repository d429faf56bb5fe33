import { byName } from '../../../protocol/records';
import { encodeFrame } from '../../../protocol/arrow-columns';
import { HEADER_BYTES } from '../../../protocol/frame';
import { streamTable } from '../../../protocol/frame-table';
import { STREAMS } from '../../../protocol/streams';
import { RowStore, type IStreamRows } from '../../../store/row-store';
import type { MemoryRun } from '../../../store/__tests__/memory-run';
import type { IAlarm } from '../store/alarms';

const arrived = new WeakMap<MemoryRun, IAlarm[]>();

/** Let alarms of a run arrive. */
export function alarm(run: MemoryRun, ...rows: Partial<IAlarm>[]): void {
  const alarms = [...(arrived.get(run) ?? []), ...rows.map(alarmRow)];
  arrived.set(run, alarms);
  run.arrive('alarms', alarms.at(-1)?.step ?? 0, () => alarmRows(alarms));
}

/** A jump of the gradient of a weight of layer 1 at step 1 on rank 0, unless told. */
export function alarmRow(row: Partial<IAlarm>): IAlarm {
  return {
    step: 1,
    rank: 0,
    microBatch: -1,
    rule: 'jump',
    severity: 'warning',
    direction: 'backward',
    stat: 'grad',
    name: 'decoder.layers.1.mlp.linear_fc1.weight',
    statistic: 'rms',
    value: 8,
    expected: 2,
    sentence: 'It is far above its usual level.',
    place: 0,
    samples: '',
    cause: 0,
    ...row
  };
}

/** Alarms as the rows of their stream. */
export function alarmRows(alarms: readonly IAlarm[]): IStreamRows {
  const store = new RowStore(STREAMS.alarms);
  store.append(streamTable('alarms', alarmBytes(alarms)), false);
  return store.rows();
}

/** Alarms as an Arrow IPC stream. */
export function alarmBytes(alarms: readonly IAlarm[]): Uint8Array {
  const column = <K extends keyof IAlarm>(name: K): IAlarm[K][] => alarms.map(each => each[name]);
  const zeros = new Float64Array(alarms.length);
  const { microBatch: micro_batch, ...columns } = {
    ...byName(Object.keys(alarmRow({})) as (keyof IAlarm)[], column),
    time: zeros,
    stage: zeros.map(() => -1)
  };
  return encodeFrame('alarms', { ...columns, micro_batch }, { step: -1, timeUs: 0 }).slice(HEADER_BYTES);
}

/** A NaN in the forward pass of layer 1, rank 1, that goes through the rest of the step; before it a note. */
export const BROKEN = [
  alarmRow({ step: 2, severity: 'note', rule: 'drift', place: 3 }),
  alarmRow({ step: 4, place: 9, direction: 'backward', rank: 1, rule: 'nonfinite', severity: 'critical' }),
  alarmRow({
    step: 4,
    place: 7,
    direction: 'loss',
    stat: 'scalar',
    name: 'loss',
    statistic: 'value',
    value: NaN
  }),
  alarmRow({
    step: 4,
    place: 2,
    direction: 'forward',
    stat: 'activation',
    name: 'decoder.layers.1.mlp.linear_fc1/output0',
    statistic: 'nan_count',
    value: 12,
    expected: 0,
    rank: 1,
    microBatch: 1,
    rule: 'nonfinite',
    severity: 'critical',
    sentence: 'Values are lost.',
    samples: '["a1","a2"]'
  })
];
