import type { IMomentGroups, IMomentSource } from '../store/moment-source';
import { MomentTable } from './moment-table';
import { groupTables, statsOf } from './moment-ratio';
import { needsWhole, shapeGroups, type IMomentQuestion } from './moment-shape';

/**
 * Group the statistics of a run: from its rows where they can be brought here, else as the server groups them.
 *
 * @param source - The run's moments.
 * @param question - What is asked and how it is shaped.
 * @throws AggregateError when the question contradicts itself, `mixed` when inputs and outputs would enter one group.
 * @throws StoreError when the source cannot answer.
 */
export async function groupMoments(
  source: IMomentSource,
  question: IMomentQuestion,
  signal?: AbortSignal
): Promise<IMomentGroups> {
  const tables: MomentTable[] = [];
  for (const stat of statsOf(question)) {
    const rows = await source.rows([stat], undefined, null, signal);
    signal?.throwIfAborted();
    if (rows === null) {
      return source.groups(question, signal);
    }
    const table = new MomentTable(stat);
    table.append(rows);
    tables.push(table);
  }
  const query = needsWhole(question) ? { ...question, steps: null } : question;
  return shapeGroups(groupTables(tables, query), question);
}
