import type { AskOf, IQuestion } from '../client/question';
import type { IRunDetail } from '../client/runs-api';
import type { IRunReader } from '../client/run-reader';
import type { IMomentsReader } from '../client/moments-api';
import { ClientError } from '../client/client-error';
import type { Phase } from '../protocol/messages.generated';
import { streamTable } from '../protocol/frame-table';
import { readableStreams } from '../protocol/streams';
import { own } from '../protocol/records';
import { RowStore, type IRowsQuery, type IStreamRows } from '../store/row-store';
import { RecordedRun } from '../store/recorded-run';
import type { IRunEvent } from '../store/run-events';
import type { IScalarColumns } from '../store/source';
import type { ITensorQuery, ITensorResult, ITensorRow, ITensorShape, StepsQuery } from '../store/tensor-data';
import { StoreError } from '../store/store-error';
import { compareRows } from '../store/tensor-rows';
import { cutTrend, trendOfRows } from '../aggregate';
import { trendAsked } from '../store/line-answers';
import type { ITrendAnswer, ITrendQuery } from '../store/line-data';
import { lineKey, type IAsked, type IHeldAnswer, type IHeldLines, type IHeldRows } from './held';
import { layerWords } from '../views/shared/layers';

/** What the file holds of a run. */
export interface IHeldRun extends IHeldRows {
  readonly id: string;
  readonly detail: IRunDetail;
  readonly scalars: IScalarColumns | null;
  readonly events?: readonly IRunEvent[];
  /** Rows of other streams, as Arrow IPC streams. */
  readonly tables?: ReadonlyMap<string, Uint8Array>;
  readonly moments: IMomentsReader;
  /** Trends of more rows than are held, as they were answered. */
  readonly trends?: readonly IHeldLines[];
  /** What instruments asked of the recording. */
  readonly answers?: readonly IHeldAnswer[];
}

/** A run of which a report's file holds the rows that its views asked for. Any other question rejects and says so. */
export class HeldRun extends RecordedRun {
  constructor(private readonly held: IHeldRun) {
    const { id, detail, moments } = held;
    const trends = held.trends ?? [];
    const lines: IRunReader['lines'] = (_, __, query) => {
      const found = trends.find(each => lineKey(each.query) === lineKey(query));
      return found ? Promise.resolve(found.bytes) : notHere();
    };
    const reader: IRunReader = { index: notHere, stream: notHere, lines, moments, asker: askerOf(held) };
    super(id, detail, reader);
  }

  override events(): Promise<readonly IRunEvent[]> {
    return Promise.resolve(this.held.events ?? []);
  }

  override async table(stream: string, query: IRowsQuery = {}): Promise<IStreamRows> {
    const streams = readableStreams(this.hello.streams);
    const [bytes, info] = [this.held.tables?.get(stream), streams.get(stream)];
    if (bytes === undefined || info === undefined) {
      return notHere();
    }
    const store = new RowStore(info);
    store.append(streamTable(stream, bytes, streams), false);
    return store.rows(query);
  }

  override async steps(flag: string, phase?: Phase, of: StepsQuery = {}): Promise<readonly number[]> {
    const query = { flag, ...(phase ? { phase } : {}), ...of };
    this.require(query);
    const rows = this.rows(query);
    const drawn = rows.filter(row => !row.reduced);
    return [...new Set((drawn.length > 0 ? drawn : rows).map(row => row.step))].sort((a, b) => a - b);
  }

  override shapeOf(flag: string): Promise<ITensorShape> {
    const shape = own(this.held.shapes, flag);
    return shape === undefined ? Promise.reject(this.lacks(flag)) : Promise.resolve(shape);
  }

  override async tensors(query: ITensorQuery): Promise<ITensorResult> {
    const { sampledEvery, thinned } = this.require(query);
    const [first, last] = query.steps ?? [-Infinity, Infinity];
    const rows = this.rows(query).filter(row => row.step >= first && row.step <= last);
    if (query.measured) {
      const newest = new Map<number, ITensorRow>();
      rows.filter(row => Number.isFinite(row.compressionError)).forEach(row => newest.set(row.layer, row));
      return { rows: [...newest.values()].sort(compareRows), evictedRows: 0, sampledEvery: 1 };
    }
    return {
      rows: rows.filter(row => query.reduced || !row.reduced),
      evictedRows: 0,
      sampledEvery,
      ...(thinned && query.reduced ? { thinned } : {})
    };
  }

  /** Trends of more rows than a file holds are held as they were drawn; others are made of the rows. */
  override readonly trend = async (query: ITrendQuery): Promise<ITrendAnswer> => {
    const key = lineKey(trendAsked(query));
    return this.held.trends?.some(each => lineKey(each.query) === key)
      ? cutTrend(await this.recording.trend(query), query.steps)
      : this._ofRows(query, await this.tensors({ ...query, reduced: true }));
  };

  private _ofRows(query: ITrendQuery, result: ITensorResult): Promise<ITrendAnswer> {
    // Of a stretch of a long line the file has not every step, and nobody may take its neighbour for it.
    return result.thinned && query.steps && query.points === undefined
      ? Promise.reject(this.lacks(query.flag, query.layers))
      : trendOfRows(result, query);
  }

  override readonly scalarLines = undefined;

  override scalars(names?: readonly string[] | null): Promise<IScalarColumns> {
    const { scalars } = this.held;
    if (scalars === null) {
      return Promise.reject(new StoreError('unavailable', `This file holds no scalars of ${this.name}.`));
    }
    const wanted = names ?? Object.keys(scalars.units);
    const kept = scalars.name.flatMap((name, at) => (wanted.includes(name) ? [at] : []));
    const pick = (column: Float64Array): Float64Array => Float64Array.from(kept, at => column[at] ?? NaN);
    return Promise.resolve({
      ...scalars,
      step: pick(scalars.step),
      time: pick(scalars.time),
      value: pick(scalars.value),
      name: kept.map(at => scalars.name[at] ?? ''),
      units: Object.fromEntries(Object.entries(scalars.units).filter(([name]) => wanted.includes(name)))
    });
  }

  /** Rows of any step, ordered. */
  private rows({ flag, part, layers, phase, pass, rank }: ITensorQuery): ITensorRow[] {
    const found = this.held.rows.filter(
      row =>
        row.flag === flag &&
        (part === undefined || row.part === part) &&
        (layers === undefined || layers.includes(row.layer)) &&
        (phase === undefined || row.phase === phase) &&
        (pass === undefined || row.pass === pass) &&
        (rank === undefined || rank === 'lowest' || row.rank === rank)
    );
    const lowest = new Map<number, number>();
    found.forEach(row => lowest.set(row.layer, Math.min(row.rank, lowest.get(row.layer) ?? Infinity)));
    return found.filter(row => rank !== 'lowest' || row.rank === lowest.get(row.layer)).sort(compareRows);
  }

  /** Throw unless the views of the report asked for as much; return what was left out. */
  private require(query: ITensorQuery): Pick<IAsked, 'sampledEvery' | 'thinned'> {
    const layers = query.layers;
    const fitting = this.held.asked.filter(
      ({ query: asked }) =>
        asked.flag === query.flag &&
        same(asked.part, query.part) &&
        same(asked.phase, query.phase) &&
        same(asked.pass, query.pass) &&
        same(asked.rank, query.rank) &&
        (query.reduced === true || asked.reduced !== true || query.measured === true) &&
        (layers === undefined ||
          asked.layers === undefined ||
          layers.every(layer => asked.layers?.includes(layer)))
    );
    if (fitting.length === 0) {
      throw this.lacks(query.flag, layers);
    }
    const thinned = fitting.find(each => each.thinned)?.thinned;
    const sampledEvery = Math.min(...fitting.map(each => each.sampledEvery));
    return { sampledEvery, ...(thinned ? { thinned } : {}) };
  }

  private lacks(flag: string, layers?: readonly number[]): StoreError {
    const title = this.hello.flags.find(({ name }) => name === flag)?.title ?? flag;
    const which = layers === undefined || layers.length === 0 ? '' : ` for ${layerWords(layers)}`;
    return new StoreError(
      'unavailable',
      `This file does not hold these rows of ${title}${which}. It holds what its views drew when it was made: choose that again, or open the run.`
    );
  }
}

/** Answers questions of instruments as they were answered when the file was made. */
const askerOf = ({ answers = [] }: IHeldRun): IRunReader['asker'] =>
  function asker<R extends object, A>({ name, held }: IQuestion<R, A>): AskOf<R, A> | undefined {
    return (
      held &&
      ((_, request) => {
        const key = held.key(request);
        const found = answers.find(each => each.question === name && each.key === key);
        // What is read is what a question's own form wrote.
        const parse = held.parse ?? ((text: string) => JSON.parse(text) as A | null);
        return found ? Promise.resolve(parse(found.text)) : notHere();
      })
    );
  };

/** Whether what was asked for is what is wanted, or more. */
function same<T>(asked: T | undefined, wanted: T | undefined): boolean {
  return asked === undefined || wanted === undefined || asked === wanted;
}

function notHere(): Promise<never> {
  return Promise.reject(new ClientError('unreachable', 'This file holds what its views drew, and no more.'));
}
