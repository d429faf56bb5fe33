import { HEADER_BYTES } from '../protocol/frame';
import { encodeFrame } from '../protocol/encode-frame';
import { streamTable } from '../protocol/frame-table';
import { own } from '../protocol/own';
import { ScalarStore } from '../store/scalar-store';
import type { IScalarColumns } from '../store/source';
import type { IPageRun } from './held';
import { HeldMoments } from './held-moments';
import { HeldRun } from './held-run';
import { pack, unpack } from './packing';
import { shortMoments } from './record-moments';
import type { Recorder } from './recorder';
import { readRows, writeRows } from './tensor-rows';

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

/** Write scalars as an Arrow IPC stream. */
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
    trends: recorder.heldTrends.map(each => ({ ...each, bytes: packed(each.bytes) })),
    answers: recorder.heldAnswers.map(({ text, ...about }) => ({
      ...about,
      bytes: packed(new TextEncoder().encode(text))
    })),
    scalars: scalars === null ? '' : packed(scalarBytes(scalars)),
    thinned: scalars?.thinned ?? 0,
    events: recorder.heldEvents.map(each => ({
      ...each,
      last: Number.isFinite(each.last) ? each.last : null
    })),
    tables: Object.fromEntries([...recorder.heldTables].map(([name, bytes]) => [name, packed(bytes)])),
    moments: moments && {
      index: moments.index,
      rows: Object.fromEntries([...moments.rows].map(([stat, rows]) => [stat, packed(shortMoments(rows))])),
      groups: moments.groups.map(each => ({ ...each, bytes: packed(each.bytes) }))
    }
  };
}

/** Open a run that a page carries. */
export async function readPageRun(page: IPageRun): Promise<HeldRun> {
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
  return new HeldRun({
    ...page,
    tables: new Map(await Promise.all(tables)),
    events: page.events.map(each => ({ ...each, last: each.last ?? Infinity })),
    rows,
    trends: await Promise.all(trends),
    answers: await Promise.all(answers),
    scalars: page.scalars === '' ? null : { ...store.columns(), thinned: page.thinned },
    moments: new HeldMoments(held)
  });
}
