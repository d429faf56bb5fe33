import { zlibSync } from 'fflate';
import type { IRunReader, IMomentsReader } from '../../client/run-reader';
import type { IRunDetail } from '../../client/runs-api';
import type { Hello } from '../../protocol/messages.generated';
import { encodeFrame } from '../../protocol/arrow-columns';
import { HEADER_BYTES } from '../../protocol/frame';
import type { ITensorRow } from '../../store/tensor-data';
import { TensorStore } from '../../store/tensor-store';
import { HELLO, rowOf } from '../../store/__tests__/memory-run';
import type { StoredRun } from '../stored-run';
import { bytesOf, readPageRun, scalarBytes, writePageRun } from '../page-data';
import type { Recorder } from '../recorder';

export { rowOf };

/** What was recorded, through a page and back. */
export const opened = (recorder: Recorder): Promise<StoredRun> =>
  readPageRun(writePageRun(recorder, recorder.storedScalars, bytes => zlibSync(bytes)));

/** A recorded run whose rows are in memory, read as from a server; who made a change, its detail and, of every second, what it was are one text. */
export function fakeReader(
  rows: readonly ITensorRow[],
  scalars: readonly (readonly [number, string, number])[] = [],
  moments: IMomentsReader = noMoments,
  changes: readonly string[] = []
): IRunReader {
  const store = new TensorStore(Infinity);
  rows.forEach(row => store.add(row));
  const flags = [...new Set(rows.map(row => row.flag))];
  return {
    moments,
    tensorLines: () => Promise.reject(new Error('There are none.')),
    scalarLines: () => Promise.reject(new Error('There are none.')),
    index: () =>
      Promise.resolve(
        flags.map(flag => {
          const shape = store.shapeOf(flag);
          return {
            flag,
            phase: 'train',
            pass: 'forward' as const,
            parts: shape.parts,
            layers: shape.layers,
            ranks: shape.ranks ?? [0],
            steps: store.steps(flag)
          };
        })
      ),
    stream: (_, stream, { limit_bytes: __, ...query }) => {
      if (stream === 'scalars') {
        const columns = {
          step: Float64Array.from(scalars, each => each[0]),
          time: Float64Array.from(scalars, each => 1_790_000_000 + each[0]),
          value: Float64Array.from(scalars, each => each[2]),
          name: scalars.map(each => each[1]),
          units: {}
        };
        return Promise.resolve({ bytes: scalarBytes(columns), sampledEvery: 1 });
      }
      if (stream === 'audit') {
        const places = changes.map((_each, at) => at + 1);
        const columns = {
          step: places,
          time: places,
          who: changes,
          action: changes.map((text, at) => (at % 2 === 0 ? 'configure' : text)),
          detail: changes
        };
        const bytes = encodeFrame('audit', columns, { step: -1, timeUs: 0 }).slice(HEADER_BYTES);
        return Promise.resolve({ bytes, sampledEvery: 1 });
      }
      const found = store.query({ flag: '', ...query });
      return Promise.resolve({ bytes: bytesOf(found.rows), sampledEvery: 1 });
    }
  };
}

const noMoments: IMomentsReader = {
  index: () =>
    Promise.resolve({ version: '1', stats: [], namesFrom: 0, names: [], samples: false, warnings: [] }),
  rows: () => Promise.reject(new Error('There are none.')),
  groups: () => Promise.reject(new Error('There are none.'))
};

/** What is said of a run. */
export function detailOf(more: Partial<Hello> = {}): IRunDetail {
  return {
    hello: { ...HELLO, ...more },
    status: { type: 'status', state: 'finished', step: 9 },
    truncated: []
  };
}
