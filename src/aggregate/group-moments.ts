import type { IMomentGroups, IMomentSource } from '../store/moment-source';
import { ClientError } from '../client/client-error';
import { AggregateError } from './aggregate-error';
import { statsOf } from './moment-ratio';
import { firstValues, showGroups, smoothGroups, type IMomentQuestion } from './moment-shape';
import { pageShelf, type MomentShelf } from './moment-shelf';

/**
 * Group the statistics of a run: from its rows where they can be brought here, which is done once, else as the server groups them.
 *
 * @param source - The run's moments.
 * @param question - What is asked and how it is shaped.
 * @param shelf - Where rows are kept; one that the page shares when absent.
 * @throws AggregateError when the question contradicts itself, `mixed` when inputs and outputs would enter one group.
 * @throws StoreError when the source cannot answer.
 */
export async function groupMoments(
  source: IMomentSource,
  question: IMomentQuestion,
  signal?: AbortSignal,
  shelf: MomentShelf = pageShelf
): Promise<IMomentGroups> {
  const answer = await shelf.ask(
    source,
    statsOf(question),
    tables => ({ kind: 'group', tables, question }),
    signal
  );
  try {
    return answer?.kind === 'groups' ? answer.groups : await fromServer(source, question, signal);
  } catch (error) {
    throw refusal(error) ?? error;
  }
}

/** The server thins lines out, keeping each group's first step; what is shown against it is made of that. */
async function fromServer(
  source: IMomentSource,
  { show = 'raw', smoothing = 0, ...query }: IMomentQuestion,
  signal?: AbortSignal
): Promise<IMomentGroups> {
  const groups = await source.groups(query, signal);
  let firsts = new Map<string, number>();
  if (show !== 'raw') {
    const { series: _, ...all } = query;
    firsts = firstValues(
      query.steps ? await source.groups({ ...all, steps: null, points: 4 }, signal) : groups
    );
  }
  return smoothGroups(showGroups(groups, show, firsts), smoothing);
}

/** What the server says of a question that contradicts itself, as it would be said here. */
function refusal(error: unknown): AggregateError | null {
  const cause = error instanceof Error ? error.cause : null;
  return cause instanceof ClientError && cause.status === 400
    ? new AggregateError(cause.message, cause.serverCode === 'mixed' ? 'mixed' : 'invalid')
    : null;
}
