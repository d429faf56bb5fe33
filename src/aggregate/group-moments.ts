import type { IMomentGroups, IMomentQuery, IMomentSource } from '../store/moment-source';
import { ClientError } from '../client/client-error';
import { AggregateError } from './aggregate-error';
import { statsOf } from './moment-ratio';
import { pageCache, type MomentCache } from './moment-cache';

/**
 * Group the statistics of a run: from its rows where they can be brought here, which is done once, else as the server groups them.
 *
 * @param source - The run's moments.
 * @param question - What is asked and how it is shaped.
 * @param cache - Where rows are kept; one that the page shares when absent.
 * @throws AggregateError when the question contradicts itself, `mixed` when inputs and outputs would enter one group.
 * @throws StoreError when the source cannot answer.
 */
export async function groupMoments(
  source: IMomentSource,
  question: IMomentQuery,
  signal?: AbortSignal,
  cache: MomentCache = pageCache
): Promise<IMomentGroups> {
  const answer = await cache.ask(
    source,
    statsOf(question),
    tables => ({ kind: 'group', tables, question }),
    signal
  );
  try {
    return answer?.kind === 'groups'
      ? answer.groups
      : within(await source.groups(question, signal), question.steps ?? null);
  } catch (error) {
    throw refusal(error) ?? error;
  }
}

/** Leave of groups the steps that were asked for: a file may hold one answer for more of them. */
function within(groups: IMomentGroups, steps: readonly [number, number] | null): IMomentGroups {
  const [first, last] = steps ?? [-Infinity, Infinity];
  const isIn = (_: number, at: number): boolean => {
    const step = groups.step[at] ?? NaN;
    return step >= first && step <= last;
  };
  if (groups.step.every(isIn)) {
    return groups;
  }
  const whole = new Set(groups.step).size === groups.stepsTotal;
  const step = groups.step.filter(isIn);
  const group = groups.group.filter(isIn);
  const left = [...new Set(group)];
  const places = new Map(left.map((place, at) => [place, at]));
  return {
    ...groups,
    keys: left.map(place => groups.keys[place] ?? []),
    group: group.map(place => places.get(place) ?? 0),
    step,
    samples: groups.samples.filter(isIn),
    value: groups.value.filter(isIn),
    count: groups.count.filter(isIn),
    nonFinite: groups.nonFinite.filter(isIn),
    error: groups.error.filter(isIn),
    scaled: groups.scaled.filter(isIn),
    stepsTotal: whole ? new Set(step).size : groups.stepsTotal
  };
}

/** What the server says of a question that contradicts itself, as it would be said here. */
function refusal(error: unknown): AggregateError | null {
  const cause = error instanceof Error ? error.cause : null;
  return cause instanceof ClientError && cause.status === 400
    ? new AggregateError(cause.message, cause.serverCode === 'mixed' ? 'mixed' : 'invalid')
    : null;
}
