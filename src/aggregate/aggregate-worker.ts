import type { IMomentGroups } from '../store/row-moments';
import { MomentTables } from './moment-tables';
import { serve, type Buffers, packedMoments, type WorkerAnswer, type WorkerQuestion } from './worker-link';

const tables = new MomentTables();

serve((question: WorkerQuestion): readonly [WorkerAnswer, Buffers] => {
  if (question.kind === 'moments') {
    const packed = packedMoments(question.pack);
    return [{ kind: 'moments', packed }, [packed.buffer]];
  }
  const answer = tables.ask(question.question);
  return [{ kind: 'tables', answer }, answer.kind === 'groups' ? buffersOf(answer.groups) : []];
});

/** The memory of the columns, each buffer once. */
function buffersOf(groups: IMomentGroups): Buffers {
  const { group, step, samples, value, count, nonFinite, error, scaled } = groups;
  const columns = [group, step, samples, value, count, nonFinite, error, scaled];
  return [...new Set(columns.map(column => column.buffer))];
}
