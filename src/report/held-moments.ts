import { ClientError } from '../client/client-error';
import type {
  IMomentsGroups,
  IMomentsGroupsRequest,
  IMomentsIndex,
  IMomentsRows
} from '../client/moments-api';
import type { IMomentsReader } from '../client/run-reader';
import type { IHeldGroups, IHeldMoments } from './held';

/** Answers questions about statistics from what a report's file holds. */
export class HeldMoments implements IMomentsReader {
  /** @param held - Null where the file holds none. */
  constructor(private readonly held: IHeldMoments | null) {}

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

  async groups(_: string, request: IMomentsGroupsRequest): Promise<IMomentsGroups> {
    const key = keyOf(request);
    const fitting = this.held?.groups.filter(
      each =>
        keyOf(each.request) === key &&
        hasAsMany(each, request) &&
        (each.request.first ?? -Infinity) <= (request.first ?? -Infinity) &&
        (each.request.last ?? Infinity) >= (request.last ?? Infinity)
    );
    const wanted = request.points ?? Infinity;
    const [best] = (fitting ?? []).sort(
      (a, b) => distance(a.request.points, wanted) - distance(b.request.points, wanted)
    );
    if (best === undefined) {
      throw new ClientError(
        'refused',
        'This file does not hold the rows for that. It holds the groups that its views drew when it was made: make another report with this view, or open the run.'
      );
    }
    return { kind: 'groups', bytes: best.bytes.slice(), groups: best.groups, steps: best.steps };
  }
}

/** Whether as many groups were answered as are asked for: those that were asked for then, or all that there are. */
function hasAsMany(
  { request: { series: held = Infinity }, groups }: IHeldGroups,
  { series = Infinity }: IMomentsGroupsRequest
): boolean {
  return held === series || groups <= Math.min(held, series);
}

/** What is asked, apart from how many groups, and from the steps and how many points of them are drawn, which depends on the width of a window. */
function keyOf({ first: _, last: __, points: ___, series: ____, ...rest }: IMomentsGroupsRequest): string {
  return JSON.stringify(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function distance(points: number | undefined, wanted: number): number {
  const has = points ?? Infinity;
  return has === wanted ? 0 : Math.abs(Math.log(has) - Math.log(wanted));
}
