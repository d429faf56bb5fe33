import { groupMoments, pick, rowsWhere } from '../../aggregate';
import { byName } from '../../protocol/records';
import {
  GROUP_FLOATS,
  type IMomentGroups,
  type IMomentIndex,
  type IMomentSource,
  type MomentKey,
  type ReadingProgress
} from '../../store/row-moments';
import type { IOtherRun } from '../kits/lines/other-runs';
import { groupId } from './line';
import { narrowed } from './map-cells';
import type { MomentGroupsRequest } from '../../protocol/requests.generated';

/** A run of a comparison with what reads it; null where it has no statistics, or could not be opened. */
export interface IMomentRun extends IOtherRun {
  readonly reader: MomentReader | null;
}

/** A question of which only some groups are wanted. */
export interface IMomentQuestion extends MomentGroupsRequest {
  /** Keys of these groups, which are all that come, in this order; everything when absent. */
  readonly keys?: readonly MomentKey[];
}

/** Answers that are kept: those of one picture and its last few zooms. */
const MOST_KEPT = 24;

/**
 * Asks one run for groups and caches the last answers, so that zooming, hovering and a new theme ask nothing
 * twice. The cache is emptied when the run has more.
 */
export class MomentReader {
  constructor(readonly source: IMomentSource) {}

  get version(): string {
    return this._version ?? '';
  }

  /** What there is, as of now; `progress` is called while the source reads files for the first time. */
  async index(signal?: AbortSignal, progress?: ReadingProgress): Promise<IMomentIndex> {
    const index = await this.source.index(signal, progress);
    if (index.version !== this._version) {
      this._version = index.version;
      this._answers.clear();
    }
    return index;
  }

  /** Groups as of the last `index`. A question that fails is asked anew. */
  groups(query: IMomentQuestion, signal?: AbortSignal): Promise<IMomentGroups> {
    const key = JSON.stringify(query);
    const known = this._answers.get(key);
    if (known) {
      return known;
    }
    const asked = this._ask(query, signal);
    asked.catch(() => this._answers.get(key) === asked && this._answers.delete(key));
    this._answers.set(key, asked);
    for (const old of this._answers.keys()) {
      if (this._answers.size <= MOST_KEPT) {
        break;
      }
      this._answers.delete(old);
    }
    return asked;
  }

  /** Ask; for a few groups of many once for each, with a filter that leaves most others out. */
  private async _ask(question: IMomentQuestion, signal?: AbortSignal): Promise<IMomentGroups> {
    const { keys, series: _series, ...query } = question;
    if (keys === undefined) {
      return groupMoments(this.source, question, signal);
    }
    const { by, where } = query;
    return joined(
      await Promise.all(
        keys.map(async key => {
          const narrow = { ...query, where: narrowed(where, by, key) };
          const groups = await groupMoments(this.source, narrow, signal);
          const wanted = groups.keys.findIndex(each => groupId(each) === groupId(key));
          return pick(
            groups,
            rowsWhere(groups, row => groups.group[row] === wanted)
          );
        })
      )
    );
  }

  /** Add a reader to another run. Views of one run share it. */
  static of(run: IOtherRun): IMomentRun {
    const moments = run.source?.moments;
    if (!moments) {
      return { ...run, reader: null };
    }
    const reader = READERS.get(moments) ?? new MomentReader(moments);
    READERS.set(moments, reader);
    return { ...run, reader };
  }

  private _version: string | null = null;
  private readonly _answers = new Map<string, Promise<IMomentGroups>>();
}

/** Answers one after the other, as one. */
function joined(parts: readonly IMomentGroups[]): IMomentGroups {
  const floats = (name: (typeof GROUP_FLOATS)[number]): Float64Array =>
    Float64Array.from(parts.flatMap(part => Array.from(part[name])));
  const found = parts.filter(part => part.keys.length > 0);
  return {
    ...byName(GROUP_FLOATS, floats),
    keys: found.flatMap(part => part.keys),
    group: Uint32Array.from(found.flatMap((part, at) => Array.from(part.step, () => at))),
    scaled: Uint8Array.from(parts.flatMap(part => Array.from(part.scaled))),
    groupsTotal: found.length,
    stepsTotal: parts.reduce((most, part) => Math.max(most, part.stepsTotal), 0)
  };
}

const READERS = new WeakMap<IMomentSource, MomentReader>();
