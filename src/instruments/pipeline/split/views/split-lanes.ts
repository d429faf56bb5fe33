import { formatInteger } from '../../../../charts';
import type { Translate } from '../../../../views/shared/translate';
import type { ILane, ILaneGroup, IOperation } from '../../views/plan-lanes';
import type { IMeasuredSplit } from '../plan/measured-split';
import type { ISplitLane, ISplitOperations, ISplitPlanned } from '../plan/planned-split';
import { roleWords } from './split-pane';

type Process = Pick<ISplitLane, 'role' | 'stage'>;

/**
 * The lanes of a layout, for each stage its forward above its backward process, each with that of what was
 * measured under it.
 * @param measured - A step of the same processes; null where none is to be drawn.
 */
export function splitLanes(
  planned: ISplitPlanned,
  measured: IMeasuredSplit | null,
  t: Translate
): ILaneGroup {
  const plan = operationsOf(planned.operations, planned.lanes.length);
  const step = measured === null ? [] : operationsOf(measured.operations, measured.lanes.length);
  const order = planned.lanes
    .map((lane, at) => ({ lane, at }))
    .sort((a, b) => a.lane.stage - b.lane.stage || rank(a.lane) - rank(b.lane));
  const lanes = order.flatMap(({ lane, at }): ILane[] => {
    const under = measured?.lanes.findIndex(each => isSame(each, lane)) ?? -1;
    const below = step[under];
    return [
      { name: laneName(lane, t), operations: plan[at] ?? [] },
      ...(below ? [{ name: t('measured'), operations: below }] : [])
    ];
  });
  const end = lanes.reduce(
    (most, { operations }) => operations.reduce((last, each) => Math.max(last, each.end), most),
    planned.stepMs
  );
  return { heading: '', lanes, end };
}

/** Whether a run's own processes are those of a layout. */
export const isMeasured = ({ lanes }: ISplitPlanned, measured: IMeasuredSplit): boolean =>
  lanes.length === measured.lanes.length &&
  lanes.every(lane => measured.lanes.some(each => isSame(each, lane)));

const isSame = (a: Process, b: Process): boolean => a.role === b.role && a.stage === b.stage;

const rank = ({ role }: Process): number => (role === 'forward' ? 0 : 1);

const laneName = ({ role, stage }: Process, t: Translate): string =>
  role === 'both'
    ? t('stage %1', formatInteger(stage))
    : t('%1 %2', formatInteger(stage), roleWords(role, t));

function operationsOf(columns: ISplitOperations, count: number): IOperation[][] {
  const lanes = Array.from({ length: count }, (): IOperation[] => []);
  columns.lane.forEach((lane, at) => {
    const kind = columns.kind[at] ?? 'F';
    const [begin, end] = [columns.begin[at] ?? NaN, columns.end[at] ?? NaN];
    // What takes no time is not there to be seen.
    if (!(end > begin)) {
      return;
    }
    lanes[lane]?.push({
      // In lanes W are gradients of weights.
      kind: kind === 'W' ? 'S' : kind,
      chunk: 0,
      microBatch: columns.microBatch[at] ?? -1,
      begin,
      end
    });
  });
  return lanes.map(operations => operations.sort((a, b) => a.begin - b.begin));
}
