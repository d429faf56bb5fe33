import type { IDisposable } from '@lumino/disposable';
import { own } from '../protocol/records';
import type { IStreamInfo } from '../protocol/streams';
import type { IStreamRows, RowColumn } from './row-store';
import { ascending } from './recording';
import type { ITensorResult, ITensorRow, ITensorShape } from './tensor-data';
import { compareRows } from './tensor-rows';
import type { SourceChange } from './source';

/** Longest that changes wait for others, ms: in a page that is looked at, and elsewhere. */
const [SEEN_MS, UNSEEN_MS] = [16, 50];

/** The page as far as the gate cares; nothing of it is there in Node. */
interface IPage {
  document?: { visibilityState: string };
}

/**
 * Gathers changes of rows and passes them on at most every 16 ms, or every 50 ms where nobody looks. It asks
 * for no animation frame: each would have the browser go through the whole page, also where no view of the
 * run is in sight.
 *
 * What waits is one span of steps per stream, however long a tab sleeps.
 */
export class ChangeGate implements IDisposable {
  constructor(private readonly emit: (change: SourceChange) => void) {}

  /** Note that rows of a stream came. */
  note(stream: string, firstStep: number, lastStep: number): void {
    const span = this.spans.get(stream);
    this.spans.set(stream, [
      Math.min(span?.[0] ?? firstStep, firstStep),
      Math.max(span?.[1] ?? lastStep, lastStep)
    ]);
    if (!this.scheduled && !this.isDisposed) {
      this.scheduled = true;
      const page: IPage = globalThis;
      const wait = page.document?.visibilityState === 'visible' ? SEEN_MS : UNSEEN_MS;
      this.timer = setTimeout(() => this.flush(), wait);
    }
  }

  dispose(): void {
    this.isDisposed = true;
    clearTimeout(this.timer);
    this.spans.clear();
  }

  isDisposed = false;

  private flush(): void {
    this.scheduled = false;
    const spans = [...this.spans];
    this.spans.clear();
    for (const [stream, [firstStep, lastStep]] of spans) {
      this.emit({ kind: 'rows', stream, firstStep, lastStep });
    }
  }

  private readonly spans = new Map<string, [number, number]>();
  private scheduled = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
}

/** Join what the recording has of a flag with what came here. */
export function joinShapes(there: ITensorShape, here: ITensorShape): ITensorShape {
  return {
    parts: [...new Set([...there.parts, ...here.parts])],
    layers: ascending([...there.layers, ...here.layers]),
    ranks: ascending([...(there.ranks ?? []), ...(here.ranks ?? [])]),
    passes: [...new Set([...(there.passes ?? []), ...(here.passes ?? [])])]
  };
}

/** Join the recording's tensors with those that are here, each once. */
export function joinRows(
  there: ITensorResult,
  here: ITensorResult
): Pick<ITensorResult, 'rows' | 'sampledEvery' | 'evictedRows'> {
  const place = ({ step, microBatch, flag, part, phase, pass, rank, layer, call }: ITensorRow): string =>
    [step, microBatch, flag, part, phase, pass, rank, layer, call].join('\n');
  const rows = new Map(there.rows.map(row => [place(row), row]));
  here.rows.forEach(row => rows.set(place(row), row));
  return {
    rows: [...rows.values()].sort(compareRows),
    sampledEvery: there.sampledEvery,
    evictedRows: 0
  };
}

/** The columns that tell one row of a stream from another; none where nobody says. */
export function keyColumns({ policy }: IStreamInfo): readonly string[] {
  const { identity, newer = 'step' } = policy;
  return identity === undefined ? [] : [...identity, newer, 'step'];
}

/**
 * Put the rows that came and that the recording has not beside those that it has, each once and by step. Of
 * the newest step it may have a part only.
 * @param keys - Columns that tell rows apart; all that hold no lists where there are none.
 */
export function joinTables(there: IStreamRows, here: IStreamRows, keys: readonly string[]): IStreamRows {
  const names = keys.length > 0 ? keys : Object.keys(here.columns).filter(name => !hasLists(here, name));
  const keyOf = ({ columns }: IStreamRows, row: number): string =>
    JSON.stringify(names.map(name => own(columns, name)?.[row]));
  const known = new Set(Array.from({ length: there.length }, (_, row) => keyOf(there, row)));
  const later = Array.from({ length: here.length }, (_, row) => row).filter(
    row => !known.has(keyOf(here, row))
  );
  const places = [
    ...Array.from({ length: there.length }, (_, row) => ({ rows: there, row })),
    ...later.map(row => ({ rows: here, row }))
  ];
  const stepOf = ({ rows, row }: (typeof places)[number]): number => Number(rows.columns['step']?.[row]);
  places.sort((a, b) => stepOf(a) - stepOf(b));
  const join = (name: string, column: RowColumn): RowColumn => {
    const cells = places.map(({ rows, row }) => own(rows.columns, name)?.[row]);
    return column instanceof Float64Array ? Float64Array.from(cells, Number) : (cells as string[]);
  };
  return {
    length: places.length,
    columns: Object.fromEntries(
      Object.entries(there.columns).map(([name, column]) => [name, join(name, column)])
    ),
    evictedRows: 0,
    sampledEvery: there.sampledEvery
  };
}

const hasLists = ({ columns }: IStreamRows, name: string): boolean => Array.isArray(own(columns, name)?.[0]);
