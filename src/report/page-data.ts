import { HEADER_BYTES } from '../protocol/frame';
import { encodeFrame } from '../protocol/arrow-columns';
import { streamTable } from '../protocol/frame-table';
import { byName, own } from '../protocol/records';
import { ScalarStore } from '../store/scalar-store';
import type { IScalarColumns } from '../store/source';
import { type ITensorRow, tensorRows } from '../store/tensor-data';
import { isKnown, momentsOf, remember, SUMS } from '../store/row-moments';
import { ClientError } from '../client/rest';
import type { IMomentsGroups, IMomentsIndex, IMomentsReader, IMomentsRows } from '../client/run-reader';
import { type IStoredGroups, type IStoredMoments, type IPageRun, membersKey, StoredRun } from './stored-run';
import { coarse, decimal, shorten, pack, unpack } from './packing';
import { shortMoments, type Recorder } from './recorder';
import type { MomentGroupsRequest } from '../protocol/requests.generated';

/** Answers questions about statistics from what a report's file holds. */
export class StoredMoments implements IMomentsReader {
  constructor(private readonly held: IStoredMoments | null) {}

  index(): Promise<IMomentsIndex> {
    const none: IMomentsIndex = {
      version: 'held',
      stats: [],
      namesFrom: 0,
      names: [],
      samples: false,
      warnings: []
    };
    return Promise.resolve(this.held?.index ?? none);
  }

  async rows(_: string, { stats }: { stats: readonly string[] }): Promise<IMomentsRows> {
    const bytes = stats.length === 1 ? this.held?.rows.get(stats[0] ?? '') : undefined;
    if (bytes === undefined) {
      throw new ClientError('refused', 'This file does not hold these rows.', { status: 413 });
    }
    // The asker may keep the memory, or give it away.
    return { kind: 'rows', bytes: bytes.slice() };
  }

  async groups(_: string, request: MomentGroupsRequest): Promise<IMomentsGroups> {
    const key = keyOf(request);
    const fitting = this.held?.groups.filter(
      each =>
        keyOf(each.request) === key && hasAsMany(each, request) && holds(each.request.steps, request.steps)
    );
    const wanted = request.points ?? Infinity;
    const [best] = (fitting ?? []).sort(
      (a, b) => distance(a.request.points, wanted) - distance(b.request.points, wanted)
    );
    if (best === undefined) {
      throw new ClientError(
        'refused',
        'This file does not hold the rows for that. It holds the groups that its views drew when it was made: ' +
          'make another report with this view, or open the run.'
      );
    }
    return { kind: 'groups', bytes: best.bytes.slice(), groups: best.groups, steps: best.steps };
  }
}

/**
 * Whether as many groups were answered as are asked for: those that were asked for then, or all that there
 * are.
 */
function hasAsMany(
  { request: { series: held = Infinity }, groups }: IStoredGroups,
  { series = Infinity }: MomentGroupsRequest
): boolean {
  return held === series || groups <= Math.min(held, series);
}

/**
 * What is asked, apart from how many groups, steps and points of them: these depend on the width of a window.
 */
function keyOf({ steps: _, points: __, series: ___, ...rest }: MomentGroupsRequest): string {
  return membersKey(rest);
}

function holds(held: MomentGroupsRequest['steps'], wanted: MomentGroupsRequest['steps']): boolean {
  const every = [-Infinity, Infinity] as const;
  const [[low, high], [first, last]] = [held ?? every, wanted ?? every];
  return low <= first && high >= last;
}

function distance(points: number | undefined, wanted: number): number {
  const has = points ?? Infinity;
  return has === wanted ? 0 : Math.abs(Math.log(has) - Math.log(wanted));
}

interface IRowBytes {
  readonly tensors: Uint8Array;
  readonly sums: Uint8Array;
  readonly shapes: readonly (readonly number[])[];
}

/** Columns before the sums: whether a row's values were given up, and the index of its shape. */
const BEFORE = 2;
/** Columns of what is known of the whole tensor. */
const WHOLE = ['count', 'mean', 'm2', 'm3', 'm4', 'min', 'max'] as const;
const NO_VALUES = [0];

/**
 * Write rows as an Arrow IPC stream with values of three digits, and next to it what a frame cannot carry: of
 * rows whose values were given up the shape, and of rows whose sums are known these, taken of the values as
 * they were.
 */
function writeRows(rows: readonly ITensorRow[]): IRowBytes {
  const shapes: (readonly number[])[] = [];
  const placeOf = new Map<string, number>();
  const sums = new Float64Array(rows.length * (BEFORE + SUMS.length)).fill(NaN);
  rows.forEach((row, at) => {
    const text = row.shape.join();
    if (!placeOf.has(text)) {
      placeOf.set(text, shapes.push(row.shape) - 1);
    }
    sums[at] = row.reduced ? 1 : 0;
    sums[rows.length + at] = placeOf.get(text) ?? 0;
    if (isKnown(row.values)) {
      const known = momentsOf(row.values);
      SUMS.forEach((name, column) => (sums[(BEFORE + column) * rows.length + at] = known[name]));
    }
  });
  // Counts are whole numbers and stay so.
  shorten(sums.subarray(4 * rows.length));
  const held = rows.map(row => ({
    ...row,
    shape: row.reduced ? NO_VALUES : row.shape,
    values: coarse(row.values)
  }));
  return { tensors: bytesOf(held), sums: new Uint8Array(sums.buffer), shapes };
}

/** Write rows as an Arrow IPC stream. */
export function bytesOf(rows: readonly ITensorRow[]): Uint8Array {
  const column = <T>(read: (row: ITensorRow) => T): T[] => rows.map(read);
  const frame = encodeFrame(
    'tensors',
    {
      step: column(row => row.step),
      micro_batch: column(row => row.microBatch),
      phase: column(row => row.phase),
      pass: column(row => row.pass),
      rank: column(row => row.rank),
      layer: column(row => row.layer),
      flag: column(row => row.flag),
      part: column(row => row.part),
      compressor: column(row => row.compressor),
      source_shape: column(row => row.sourceShape),
      shape: column(row => row.shape),
      values: column(row => row.values),
      labels: column(row => row.labels),
      nan_count: column(row => row.nanCount),
      inf_count: column(row => row.infCount),
      compression_error: column(row => row.compressionError),
      ...byName(WHOLE, name => column(row => row.whole?.[name] ?? NaN)),
      call: column(row => row.call)
    },
    { step: -1, timeUs: 0 }
  );
  return frame.slice(HEADER_BYTES);
}

function readRows({ tensors, sums: bytes, shapes }: IRowBytes): ITensorRow[] {
  const sums = new Float64Array(bytes.slice().buffer);
  const rows = tensorRows(streamTable('tensors', tensors));
  return rows.map((row, at) => {
    const given = (column: number): number => sums[column * rows.length + at] ?? NaN;
    const values = decimal(row.values);
    if (Number.isFinite(given(BEFORE))) {
      remember(
        values,
        byName(SUMS, name => given(BEFORE + SUMS.indexOf(name)))
      );
    }
    return given(0) === 1
      ? { ...row, values, shape: shapes[given(1)] ?? row.shape, reduced: true as const }
      : { ...row, values };
  });
}

/** Bytes of scalars, as their store counts them, that a file holds: some 20,000 points. */
const SCALAR_BYTES = 480_000;

/** Return the scalars that a file holds: thinned out where they are many, as a live view thins them out. */
export function fewScalars(columns: IScalarColumns | null): IScalarColumns | null {
  if (columns === null) {
    return null;
  }
  const store = new ScalarStore(SCALAR_BYTES);
  if (columns.name.length > 0) {
    store.append(streamTable('scalars', scalarBytes(columns)), false);
  }
  return store.columns();
}

export function scalarBytes({ step, time, value, name, units }: IScalarColumns): Uint8Array {
  const rank = new Int32Array(name.length);
  const unit = name.map(each => own(units, each) ?? '');
  const columns = { step, time, rank, name, value, unit };
  return encodeFrame('scalars', columns, { step: -1, timeUs: 0 }).slice(HEADER_BYTES);
}

/** Write what views asked of a run as the page carries it. */
export function writePageRun(
  recorder: Recorder,
  scalars: IScalarColumns | null,
  deflate: (bytes: Uint8Array) => Uint8Array
): IPageRun {
  const { held, recordedMoments, about, id } = recorder;
  const { tensors, sums, shapes } = writeRows(held.rows);
  const packed = (bytes: Uint8Array): string => pack(bytes, deflate);
  const moments = recordedMoments.held;
  return {
    id,
    detail: about,
    tensors: packed(tensors),
    sums: packed(sums),
    tensorShapes: shapes,
    asked: held.asked,
    shapes: held.shapes,
    trends: recorder.storedTrends.map(each => ({ ...each, bytes: packed(each.bytes) })),
    answers: recorder.storedAnswers.map(({ text, ...about }) => ({
      ...about,
      bytes: packed(new TextEncoder().encode(text))
    })),
    scalars: scalars === null ? '' : packed(scalarBytes(scalars)),
    thinned: scalars?.thinned ?? 0,
    events: recorder.storedEvents.map(each => ({
      ...each,
      last: Number.isFinite(each.last) ? each.last : null
    })),
    tables: Object.fromEntries([...recorder.storedTables].map(([name, bytes]) => [name, packed(bytes)])),
    moments: moments && {
      index: moments.index,
      rows: Object.fromEntries([...moments.rows].map(([stat, rows]) => [stat, packed(shortMoments(rows))])),
      groups: moments.groups.map(each => ({ ...each, bytes: packed(each.bytes) }))
    }
  };
}

export async function readPageRun(page: IPageRun): Promise<StoredRun> {
  const [tensors, sums] = await Promise.all([unpack(page.tensors), unpack(page.sums)]);
  const rows = readRows({ tensors, sums, shapes: page.tensorShapes });
  const { moments } = page;
  const store = new ScalarStore(Infinity);
  if (page.scalars !== '') {
    store.append(streamTable('scalars', await unpack(page.scalars)), false);
  }
  const held = moments && {
    index: moments.index,
    rows: new Map(
      await Promise.all(
        Object.entries(moments.rows).map(async ([stat, text]) => [stat, await unpack(text)] as const)
      )
    ),
    groups: await Promise.all(
      moments.groups.map(async each => ({ ...each, bytes: await unpack(each.bytes) }))
    )
  };
  const trends = page.trends.map(async each => ({ ...each, bytes: await unpack(each.bytes) }));
  const answers = page.answers.map(async ({ bytes, ...about }) => ({
    ...about,
    text: new TextDecoder().decode(await unpack(bytes))
  }));
  const tables = Object.entries(page.tables).map(
    async ([stream, text]) => [stream, await unpack(text)] as const
  );
  return new StoredRun({
    ...page,
    tables: new Map(await Promise.all(tables)),
    events: page.events.map(each => ({ ...each, last: each.last ?? Infinity })),
    rows,
    trends: await Promise.all(trends),
    answers: await Promise.all(answers),
    scalars: page.scalars === '' ? null : { ...store.columns(), thinned: page.thinned },
    moments: new StoredMoments(held)
  });
}
