import { ArrowColumns } from '../protocol/arrow-columns';
import { ClientError } from '../client/client-error';
import type { IMomentsIndex, IMomentsReader } from '../client/moments-api';
import type { IHeldGroups, IHeldMoments } from './held';
import { shorten } from './packing';

/** Bytes that one row takes in a page, about: six numbers of nine digits, the others nearly nothing. */
const PAGE_ROW_BYTES = 52;
/** Most points of one line that a file holds. */
export const MOST_POINTS = 600;
/** Lines that are compared are asked for with more points than this. */
const COMPARED = 4000;
/** Columns whose numbers a page holds with nine digits. */
const NUMBERS = ['mean', 'm2', 'm3', 'm4', 'min', 'max'];

/**
 * Asks for the statistics of a run, and remembers what was answered. Rows are brought where those of a stat fit into the page, so that any
 * question about them can be answered there; else only groups are, and the page answers the questions that were asked here.
 */
export class MomentsRecorder implements IMomentsReader {
  /**
   * @param reader - Answers.
   * @param room - Bytes of page for rows.
   */
  constructor(
    private readonly reader: IMomentsReader,
    private room: number
  ) {}

  /** What was answered; null where nobody asked. */
  get held(): IHeldMoments | null {
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
    if (stats.length > 1 || (!known && rows * PAGE_ROW_BYTES > this.room)) {
      throw new ClientError('refused', 'These rows are too many for a report.', { status: 413 });
    }
    const answer = await this.reader.rows(...asked);
    if (answer.kind === 'rows' && !known) {
      this.room -= rows * PAGE_ROW_BYTES;
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
  private readonly _groups: IHeldGroups[] = [];
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
