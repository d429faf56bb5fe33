import type { IMomentGroups, IMomentQuery, IMomentSource } from '../store/moment-source';
import { ClientError } from '../client/client-error';
import { AggregateError } from './aggregate-error';
import { statsOf } from './moment-ratio';
import { pick, rowsAt } from './moment-pick';
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
  const rows = rowsAt(groups, [first, last]);
  if (rows.length === groups.step.length) {
    return groups;
  }
  const kept = pick(groups, rows);
  const whole = new Set(groups.step).size === groups.stepsTotal;
  return { ...kept, stepsTotal: whole ? new Set(kept.step).size : groups.stepsTotal };
}

/** What the server says of a question that contradicts itself, as it would be said here. */
function refusal(error: unknown): AggregateError | null {
  const cause = error instanceof Error ? error.cause : null;
  return cause instanceof ClientError && cause.status === 400
    ? new AggregateError(cause.message, cause.serverCode === 'mixed' ? 'mixed' : 'invalid')
    : null;
}
