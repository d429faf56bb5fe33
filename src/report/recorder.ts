import { byLayer, layoutOf, thinLine, trend, trendOfRows, type Statistic } from '../aggregate';
import { type AskOf, type IQuestion, ClientError } from '../client/rest';
import type { IRunDetail } from '../client/runs-api';
import type { IRunReader, IMomentsIndex, IMomentsReader } from '../client/run-reader';
import type { Phase } from '../protocol/messages.generated';
import { readableStreams } from '../protocol/streams';
import { RecordedRun } from '../store/recorded-run';
import { momentsOf, remember } from '../store/row-moments';
import type { IRowsQuery, IStreamRows } from '../store/row-store';
import type { IRunEvent } from '../store/run-events';
import type { IScalarColumns } from '../store/source';
import type { ITensorQuery, ITensorResult, ITensorRow, ITensorShape, StepsQuery } from '../store/tensor-data';
import { cleanPaths } from '../views/shared/clean-paths';
import type { ILayerLine, ITrendAnswer } from '../store/line-data';
import { ArrowColumns } from '../protocol/arrow-columns';
import type {
  IStoredGroups,
  IStoredMoments,
  IAsked,
  IStoredAnswer,
  IStoredLines,
  IStoredRows
} from './stored-run';
import { shorten, StoredTables } from './packing';
import type { TrendRequest } from '../protocol/requests.generated';

/** Bytes that one row takes in a page, about: six numbers of nine digits, the others nearly nothing. */
const PAGE_ROW_BYTES = 52;
/** Most points of one line that a file holds. */
const MOST_POINTS = 600;
/** Lines that are compared are asked for with more points than this. */
const COMPARED = 4000;
/** Columns whose numbers a page holds with nine digits. */
const NUMBERS = ['mean', 'm2', 'm3', 'm4', 'min', 'max'];

/**
 * Asks for the statistics of a run, and remembers the answers. Rows are brought where those of a stat fit
 * into the page, so that any question about them can be answered there; else only groups are, and the page
 * answers the questions that were asked here.
 */
class MomentsRecorder implements IMomentsReader {
  /** @param room - Bytes of page for rows. */
  constructor(
    private readonly reader: IMomentsReader,
    private budget: number
  ) {}

  /** What was answered; null where nobody asked. */
  get held(): IStoredMoments | null {
    const { _index: index } = this;
    if (index === null) {
      return null;
    }
    const asked = new Set([
      ...this._rows.keys(),
      ...this._groups.flatMap(({ request: { stat, ratio } }) => [
        stat,
        ...(ratio === 'grad_to_param' ? ['param'] : [])
      ])
    ]);
    const stats = index.stats.filter(({ stat }) => asked.has(stat));
    return { index: { ...index, stats }, rows: this._rows, groups: this._groups };
  }

  async index(...asked: Parameters<IMomentsReader['index']>): ReturnType<IMomentsReader['index']> {
    const answer = await this.reader.index(...asked);
    if (answer !== null && !('kind' in answer)) {
      this._index = answer;
    }
    return answer;
  }

  async rows(...asked: Parameters<IMomentsReader['rows']>): ReturnType<IMomentsReader['rows']> {
    const [, { stats }] = asked;
    const rows = this._index?.stats.find(each => each.stat === stats[0])?.rows ?? 0;
    const known = this._rows.has(stats[0] ?? '');
    if (stats.length > 1 || (!known && rows * PAGE_ROW_BYTES > this.budget)) {
      throw new ClientError('refused', 'These rows are too many for a report.', { status: 413 });
    }
    const answer = await this.reader.rows(...asked);
    if (answer.kind === 'rows' && !known) {
      this.budget -= rows * PAGE_ROW_BYTES;
      this._rows.set(stats[0] ?? '', answer.bytes);
    }
    return answer;
  }

  async groups(...asked: Parameters<IMomentsReader['groups']>): ReturnType<IMomentsReader['groups']> {
    const [id, request, signal] = asked;
    const points = request.points ?? Infinity;
    // Of runs that are compared every step is needed, so that they meet.
    const fewer = points <= COMPARED ? { ...request, points: Math.min(points, MOST_POINTS) } : request;
    const answer = await this.reader.groups(id, fewer, signal);
    if (answer.kind === 'groups') {
      const { groups, steps, bytes } = answer;
      this._groups.push({ request: fewer, groups, steps, bytes });
    }
    return answer;
  }

  private _index: IMomentsIndex | null = null;
  private readonly _rows = new Map<string, Uint8Array>();
  private readonly _groups: IStoredGroups[] = [];
}

/** Return rows of statistics with numbers of nine digits. */
export function shortMoments(bytes: Uint8Array): Uint8Array {
  const copy = bytes.slice();
  const { table } = new ArrowColumns(copy);
  for (const name of NUMBERS) {
    for (const { values } of table.getChild(name).data) {
      if (values instanceof Float64Array) {
        shorten(values);
      }
    }
  }
  return copy;
}

/** A line's rows are left as they are where those of all lines are not more than this. */
const FEW_ROWS = 4000;
/**
 * Steps are asked for together where no more than so many times as many lie between the first and the last of
 * them, and no more bytes.
 */
const MOST_BETWEEN = 8;
const MOST_TOGETHER = 16 << 20;

/** A row, and the views that draw its values; of a row that no view does only the sums are needed. */
interface IEntry {
  readonly row: ITensorRow;
  readonly drawnBy: Set<number>;
  summed: boolean;
}

interface IReading {
  readonly singles: ITensorQuery[];
  readonly lists: (readonly number[])[];
  readonly spans: { readonly query: ITensorQuery; readonly rows: readonly ITensorRow[] }[];
}

/** A view that draws one step at a time, and the steps that it may draw. */
export interface ISlide {
  /** The step that it draws first. */
  readonly step: number;
  /** All that there are. */
  readonly steps: readonly number[];
  /** What it asked for that step. */
  readonly queries: readonly ITensorQuery[];
  /** Bytes of values of that step. */
  readonly bytes: number;
}

/**
 * A recorded run that remembers what views ask of it, and the answers: that is what a report's file carries.
 * Texts are cleaned of what identifies the machine.
 */
export class Recorder extends RecordedRun {
  /** @param budget - Bytes of page for rows of statistics. */
  static of(id: string, detail: IRunDetail, reader: IRunReader, budget: number): Recorder {
    const moments = new MomentsRecorder(reader.moments, budget);
    const trends: IStoredLines[] = [];
    const answers: IStoredAnswer[] = [];
    const tensorLines: IRunReader['tensorLines'] = async (run, query, signal) => {
      const bytes = await reader.tensorLines(run, query, signal);
      trends.push({ query, bytes });
      return bytes;
    };
    const methods = { ...methodsOf(reader), tensorLines, moments, asker: askerOf(reader, answers) };
    return new Recorder(id, cleaned(detail), methods, moments, trends, answers);
  }

  private constructor(
    id: string,
    readonly about: IRunDetail,
    reader: IRunReader,
    readonly recordedMoments: MomentsRecorder,
    /** Trends of more rows than a file holds. */
    readonly storedTrends: readonly IStoredLines[],
    readonly storedAnswers: readonly IStoredAnswer[]
  ) {
    super(id, about, reader);
  }

  /** Everything that is asked from now on is asked by this view. */
  begin(view: number, needsValues: boolean): void {
    this._view = view;
    this._needsValues = needsValues;
    this._reading = { singles: [], lists: [], spans: [] };
  }

  /** What there is to draw one step at a time of; null where the view drew none so. */
  get slide(): ISlide | null {
    const { singles, lists } = this._reading;
    const step = singles[0]?.steps?.[0];
    const steps = lists.filter(list => step !== undefined && list.includes(step)).at(-1);
    if (step === undefined || steps === undefined) {
      return null;
    }
    const queries = singles.filter(query => query.steps?.[0] === step);
    const drawn = [...this._entries.values()].filter(
      ({ row, drawnBy }) => row.step === step && drawnBy.has(this._view)
    );
    return { step, steps, queries, bytes: drawn.reduce((sum, { row }) => sum + row.values.byteLength, 0) };
  }

  /**
   * Ask for other steps what was asked for the one that is drawn: for all at once where that does not bring
   * far more than is wanted, because every question takes some milliseconds.
   *
   * @param steps - Some of the slide's, ascending; the one that is drawn may be among them.
   */
  async fetch(slide: ISlide, steps: readonly number[]): Promise<void> {
    const wanted = steps.filter(step => step !== slide.step);
    const [first = 0, last = first] = [wanted[0], wanted.at(-1)];
    const between = slide.steps.filter(step => step >= first && step <= last).length;
    const together =
      wanted.length > 1 &&
      between <= MOST_BETWEEN * wanted.length &&
      between * slide.bytes <= MOST_TOGETHER &&
      !slide.queries.some(query => query.measured);
    for (const query of slide.queries) {
      const all = together ? await super.tensors({ ...query, steps: [first, last] }) : null;
      if (all?.sampledEvery === 1) {
        all.rows.filter(row => wanted.includes(row.step)).forEach(row => this._take(query, row));
        continue;
      }
      for (const step of wanted) {
        await this.tensors({ ...query, steps: [step, step] });
      }
    }
  }

  /** Keep of the steps of a slide only these. */
  keep(view: number, slide: ISlide, steps: ReadonlySet<number>): void {
    for (const { row, drawnBy } of this._entries.values()) {
      if (!steps.has(row.step) && slide.steps.includes(row.step)) {
        drawnBy.delete(view);
      }
    }
  }

  /**
   * Leave of what the view drew over steps what fits into `budget` bytes: of lines the extremes, of tensors
   * of which a part enters every so many steps.
   *
   * @returns How many steps there were and are, of the longest line; null where nothing was left out.
   */
  thin(statistic: Statistic, budget: number): { of: number; kept: number } | null {
    let result: { of: number; kept: number } | null = null;
    for (const { query, rows } of this._reading.spans) {
      if (this._needsValues) {
        const bytes = rows.reduce((sum, row) => sum + row.values.byteLength, 0);
        const every = Math.max(1, Math.ceil(bytes / budget));
        const steps = [...new Set(rows.map(row => row.step))];
        const kept = new Set(steps.filter((_, at) => at % every === 0));
        this._asked.set(JSON.stringify(query), { query, sampledEvery: every });
        this._forget(
          rows.filter(row => !kept.has(row.step)),
          true
        );
      } else if (rows.length > FEW_ROWS) {
        const lines = byLayer(trend(rows, statistic));
        const total = Math.max(...lines.map(({ steps }) => steps.length));
        const startsOf = ({ steps, starts }: ILayerLine): number[] => starts.map(at => steps[at] ?? NaN);
        const thinned = {
          starts: Object.fromEntries(lines.map(line => [line.layer, startsOf(line)])),
          total
        };
        this._asked.set(JSON.stringify(query), { query, sampledEvery: 1, thinned });
        for (const { layer, steps, values, starts } of lines) {
          const { kept } = thinLine(steps, values, starts, MOST_POINTS);
          const stay = new Set(Array.from(kept, at => steps[at]));
          this._forget(
            rows.filter(row => row.layer === layer && !stay.has(row.step)),
            false
          );
          if (stay.size < steps.length && steps.length > (result?.of ?? 0)) {
            result = { of: steps.length, kept: stay.size };
          }
        }
      }
    }
    return result;
  }

  get held(): IStoredRows {
    const rows = [...this._entries.values()].map(({ row, drawnBy, summed }): ITensorRow => {
      if (drawnBy.size > 0 || row.reduced) {
        return row;
      }
      const values = new Float64Array(0);
      const reduced = { ...row, values: new Float32Array(values), labels: [], reduced: true as const };
      if (summed) {
        remember(reduced.values, momentsOf(row.values));
      }
      return reduced;
    });
    return { rows, asked: [...this._asked.values()], shapes: Object.fromEntries(this._shapes) };
  }

  override async events(): Promise<readonly IRunEvent[]> {
    this.storedEvents = (await super.events()).map(each => ({ ...each, text: cleanPaths(each.text) }));
    return this.storedEvents;
  }

  /** Frames of other streams that were asked for, without their headers, by name. */
  get storedTables(): ReadonlyMap<string, Uint8Array> {
    return this._tables.frames(readableStreams(this.hello.streams));
  }

  override async table(stream: string, query: IRowsQuery = {}, signal?: AbortSignal): Promise<IStreamRows> {
    // Who reads the report may look at any token: rows are held whole.
    const whole = { ...query, columns: undefined };
    const rows = await super.table(stream, whole, signal);
    this._tables.add(stream, whole, rows);
    return rows;
  }

  override async steps(flag: string, phase?: Phase, of: StepsQuery = {}): Promise<readonly number[]> {
    const steps = await super.steps(flag, phase, of);
    this._reading.lists.push(steps);
    this._ask({ flag, ...(phase ? { phase } : {}), ...of });
    return steps;
  }

  override async shapeOf(flag: string): Promise<ITensorShape> {
    const shape = await super.shapeOf(flag);
    this._shapes.set(flag, shape);
    return shape;
  }

  override async tensors(query: ITensorQuery, signal?: AbortSignal): Promise<ITensorResult> {
    const result = await super.tensors(query, signal);
    // Of a projection a statistic is of one vector.
    this._needsValues ||= query.reduced === true && result.rows.some(row => layoutOf(row, []).vectors > 1);
    const rows = result.rows.map(row => this._take(query, row));
    this._ask(query, result.sampledEvery);
    const { steps } = query;
    if (steps !== undefined && steps[0] === steps[1]) {
      this._reading.singles.push(query);
    } else if (!query.measured) {
      this._reading.spans.push({ query, rows });
    }
    return { ...result, rows };
  }

  /**
   * A trend of the rows, which the file then carries; of more than are sent at once, as the server answers
   * it.
   */
  override readonly trend = async (query: TrendRequest): Promise<ITrendAnswer> => {
    const { statistic: _, selection: __, points, ...tensors } = query;
    const asked: ITensorQuery = { ...tensors, reduced: true };
    const result = await this.tensors(asked);
    if (result.sampledEvery === 1) {
      return trendOfRows(result, query);
    }
    this._reading.spans.pop();
    this._asked.delete(JSON.stringify(asked));
    this._forget(result.rows, false);
    this._forget(result.rows, true);
    return this.recording.trend({ ...query, points: Math.min(points ?? Infinity, 2 * MOST_POINTS) });
  };

  override readonly scalarLines = undefined;

  override async scalars(names?: readonly string[] | null): Promise<IScalarColumns> {
    this.storedScalars = await super.scalars();
    return super.scalars(names);
  }

  /** What happened to the run, where a view marked it. */
  storedEvents: readonly IRunEvent[] = [];

  private _take(query: ITensorQuery, read: ITensorRow): ITensorRow {
    const { flag, part, phase, pass, rank, layer, step, microBatch, call } = read;
    const key = [flag, part, phase, pass, rank, layer, step, microBatch, call].join('\n');
    const known = this._entries.get(key);
    // What is read coarse at first comes again.
    const isFiner = known !== undefined && read.values.length > known.row.values.length;
    const entry: IEntry =
      known && !isFiner
        ? known
        : {
            row: { ...read, compressor: cleanPaths(read.compressor) },
            drawnBy: known?.drawnBy ?? new Set(),
            summed: known?.summed ?? false
          };
    this._entries.set(key, entry);
    if (query.reduced && !this._needsValues) {
      entry.summed = true;
      momentsOf(entry.row.values);
    } else if (!query.measured) {
      entry.drawnBy.add(this._view);
    }
    return entry.row;
  }

  private _ask(query: ITensorQuery, sampledEvery = 1): void {
    this._asked.set(JSON.stringify(query), { query, sampledEvery });
  }

  /** Keep these rows no longer for the current view, by values or by sums. */
  private _forget(rows: readonly ITensorRow[], byValues: boolean): void {
    const gone = new Set(rows);
    for (const [key, entry] of this._entries) {
      if (gone.has(entry.row)) {
        entry.summed &&= byValues;
        if (byValues) {
          entry.drawnBy.delete(this._view);
        }
        if (entry.drawnBy.size === 0 && !entry.summed) {
          this._entries.delete(key);
        }
      }
    }
  }

  private _view = 0;
  private _needsValues = false;
  private _reading: IReading = { singles: [], lists: [], spans: [] };
  /** Scalars that were asked for; null where nobody asked. */
  storedScalars: IScalarColumns | null = null;
  private readonly _entries = new Map<string, IEntry>();
  private readonly _asked = new Map<string, IAsked>();
  private readonly _shapes = new Map<string, ITensorShape>();
  private readonly _tables = new StoredTables();
}

/** Asks questions of instruments as a file is to hold them, and keeps what is answered. */
const askerOf = (reader: IRunReader, answers: IStoredAnswer[]): IRunReader['asker'] =>
  function asker<R extends object, A>(question: IQuestion<R, A>): AskOf<R, A> | undefined {
    const { name, held } = question;
    const ask = held && reader.asker?.(question);
    return (
      ask &&
      (async (run, request, signal) => {
        const asked = held.asked?.(request) ?? request;
        const whole = await ask(run, asked, signal);
        const answer = whole && (held.cut?.(whole) ?? whole);
        answers.push({ question: name, key: held.key(asked), text: JSON.stringify(answer) });
        return answer;
      })
    );
  };

/** A reader's own methods, which a spread of a class's object would lose. */
function methodsOf(reader: IRunReader): Pick<IRunReader, 'index' | 'stream' | 'scalarLines'> {
  return {
    index: (...asked) => reader.index(...asked),
    stream: (...asked) => reader.stream(...asked),
    scalarLines: (...asked) => reader.scalarLines(...asked)
  };
}

/** A copy of a JSON value without paths of this machine in its texts. */
export function cleaned<T>(value: T): T {
  return JSON.parse(JSON.stringify(value), (_, each: unknown) =>
    typeof each === 'string' ? cleanPaths(each) : each
  ) as T;
}
