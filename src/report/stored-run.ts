import { type AskOf, type IQuestion, ClientError } from '../client/rest';
import type { IRunDetail } from '../client/runs-api';
import type { IRunReader, IMomentsIndex, IMomentsReader } from '../client/run-reader';
import type { Phase } from '../protocol/messages.generated';
import { streamTable } from '../protocol/frame-table';
import { readableStreams } from '../protocol/streams';
import { own } from '../protocol/records';
import { RowStore, type IRowsQuery, type IStreamRows } from '../store/row-store';
import { RecordedRun } from '../store/recorded-run';
import type { IRunEvent } from '../store/run-events';
import { type IScalarColumns, StoreError } from '../store/source';
import {
  type IThinnedLines,
  type ITensorQuery,
  type ITensorRow,
  type ITensorShape,
  type ITensorResult,
  type StepsQuery,
  compareRows
} from '../store/tensor-data';
import { cutTrend, picked, trendOfRows } from '../aggregate';
import type { ITrendAnswer } from '../store/line-data';
import { layerWords } from '../views/shared/layers';
import type { ViewOptions } from '../protocol/views.generated';
import type { MomentGroupsRequest, TrendRequest } from '../protocol/requests.generated';

/** A question for tensors that the views of a report asked. */
export interface IAsked {
  readonly query: ITensorQuery;
  readonly sampledEvery: number;
  /** Set where of long lines only the extremes are held. */
  readonly thinned?: IThinnedLines;
}

/** Lines that were asked for, and the answer as it came. */
export interface IStoredLines {
  readonly query: TrendRequest;
  readonly bytes: Uint8Array;
}

/** A question of an instrument that was asked, and the answer as JSON text. */
export interface IStoredAnswer {
  readonly question: string;
  /** As `key` of the question's held form. */
  readonly key: string;
  readonly text: string;
}

/** What tells objects apart by their members, in whatever order; null is as good as absent. */
export function membersKey(members: object): string {
  const there = Object.entries(members).filter(([, value]) => value !== undefined && value !== null);
  return JSON.stringify(there.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** What tells questions for lines apart, whatever their steps and points. */
function lineKey({ steps: _, points: __, ...rest }: TrendRequest): string {
  return membersKey(rest);
}

/** An event as a page carries it: JSON has no infinite number, so what goes on has no last step. */
type PageEvent = Omit<IRunEvent, 'last'> & { readonly last: number | null };

/** Rows of a run that a report's file holds. */
export interface IStoredRows {
  readonly rows: readonly ITensorRow[];
  readonly asked: readonly IAsked[];
  /** What the run had of each flag that was asked for. */
  readonly shapes: Readonly<Record<string, ITensorShape>>;
}

/** What was answered to a question for groups. */
export interface IStoredGroups {
  readonly request: MomentGroupsRequest;
  readonly groups: number;
  readonly steps: number;
  readonly bytes: Uint8Array;
}

/** Statistics of a run that a report's file holds. */
export interface IStoredMoments {
  readonly index: IMomentsIndex;
  /** Every row of a stat, as an Arrow IPC stream. */
  readonly rows: ReadonlyMap<string, Uint8Array>;
  readonly groups: readonly IStoredGroups[];
}

/** A run as the page carries it: what is text here is packed. */
export interface IPageRun {
  readonly id: string;
  readonly detail: IRunDetail;
  /** Rows of the stream `tensors`, as an Arrow IPC stream; what is left out of a row is in `sums`. */
  readonly tensors: string;
  /** Ten columns of float64: see `tensor-rows.ts` here. */
  readonly sums: string;
  readonly tensorShapes: readonly (readonly number[])[];
  readonly asked: readonly IAsked[];
  readonly shapes: Readonly<Record<string, ITensorShape>>;
  /** Trends of more rows than are held. */
  readonly trends: readonly (Omit<IStoredLines, 'bytes'> & { readonly bytes: string })[];
  readonly answers: readonly (Omit<IStoredAnswer, 'text'> & { readonly bytes: string })[];
  /** Rows of the stream `scalars`, as an Arrow IPC stream. */
  readonly scalars: string;
  readonly events: readonly PageEvent[];
  /** Rows of other streams by name, as Arrow IPC streams. */
  readonly tables: Readonly<Record<string, string>>;
  /** Points of scalars that were left out. */
  readonly thinned: number;
  readonly moments: {
    readonly index: IMomentsIndex;
    readonly rows: Readonly<Record<string, string>>;
    readonly groups: readonly (Omit<IStoredGroups, 'bytes'> & { readonly bytes: string })[];
  } | null;
}

/** All that a page carries for its live views. */
export interface IPageData {
  readonly format: 2;
  readonly views: readonly ViewOptions[];
  /** The run of the report first, then those that it is compared with. */
  readonly runs: readonly IPageRun[];
  /** Translations of the views' texts; absent in an English page. */
  readonly words?: Readonly<Record<string, string>>;
}

/** What the file holds of a run. */
export interface IStoredRun extends IStoredRows {
  readonly id: string;
  readonly detail: IRunDetail;
  readonly scalars: IScalarColumns | null;
  readonly events?: readonly IRunEvent[];
  /** Rows of other streams, as Arrow IPC streams. */
  readonly tables?: ReadonlyMap<string, Uint8Array>;
  readonly moments: IMomentsReader;
  /** Trends of more rows than are held, as they were answered. */
  readonly trends?: readonly IStoredLines[];
  /** What instruments asked of the recording. */
  readonly answers?: readonly IStoredAnswer[];
}

/**
 * A run of which a report's file holds the rows that its views asked for. Any other question rejects and says
 * so.
 */
export class StoredRun extends RecordedRun {
  constructor(private readonly held: IStoredRun) {
    const { id, detail, moments } = held;
    const trends = held.trends ?? [];
    const tensorLines: IRunReader['tensorLines'] = (_, request) => {
      const found = trends.find(each => lineKey(each.query) === lineKey(request));
      return found ? Promise.resolve(found.bytes) : notHere();
    };
    const asker = askerOf(held);
    const reader: IRunReader = {
      index: notHere,
      stream: notHere,
      tensorLines,
      scalarLines: notHere,
      moments,
      asker
    };
    // What a file holds stays as it is, whatever the run did when it was made.
    super(id, detail, reader, { grows: false });
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
  override readonly trend = async (query: TrendRequest): Promise<ITrendAnswer> => {
    const key = lineKey(query);
    return this.held.trends?.some(each => lineKey(each.query) === key)
      ? cutTrend(await this.recording.trend(query), query.steps)
      : this._ofRows(query, await this.tensors({ ...query, reduced: true }));
  };

  private _ofRows(query: TrendRequest, result: ITensorResult): Promise<ITrendAnswer> {
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
    const pick = (column: Float64Array): Float64Array => picked(column, kept);
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
      `This file does not hold these rows of ${title}${which}. ` +
        'It holds what its views drew when it was made: choose that again, or open the run.'
    );
  }
}

/** Answers questions of instruments as they were answered when the file was made. */
const askerOf = ({ answers = [] }: IStoredRun): IRunReader['asker'] =>
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
