import { readScalars } from '../../../aggregate';
import { groupMoments } from '../../../aggregate/group-moments';
import type { IRunSource } from '../../../store/source';

/** The first value of a run that is not finite: its step, and the name of what holds it. */
export interface IFirstBad {
  readonly step: number;
  readonly name: string;
}

/** Points of a scalar that are asked for: the first of every stretch that is not finite is among them. */
const POINTS = 400;

/**
 * Find the first value that is not finite among scalars and statistics of tensors, and what the hub saw of
 * traced ones; null where there is none. Nobody needs to have judged the run.
 */
export async function firstBad(source: IRunSource): Promise<IFirstBad | null> {
  const found = [...hubSaw(source), ...(await inScalars(source)), ...(await inStatistics(source))];
  return found.reduce<IFirstBad | null>((best, each) => (best && best.step <= each.step ? best : each), null);
}

function hubSaw({ status }: IRunSource): IFirstBad[] {
  const { first, moments } = status?.nonfinite ?? {};
  return [
    ...(moments ? [moments.first] : []),
    ...(first ? [{ step: first.step, name: `${first.flag}, layer ${first.layer}` }] : [])
  ];
}

async function inScalars(source: IRunSource): Promise<IFirstBad[]> {
  const { lines } = await readScalars(source, { points: POINTS });
  return lines.flatMap(({ name, steps, values }) => {
    const step = steps[values.findIndex(value => !Number.isFinite(value))];
    return step === undefined ? [] : [{ step, name }];
  });
}

/** Of each statistic the total over all tensors tells the step, and its tensors at that step the name. */
async function inStatistics({ moments }: IRunSource): Promise<IFirstBad[]> {
  if (moments === undefined) {
    return [];
  }
  const { stats } = await moments.index();
  const found = await Promise.all(
    stats.map(async ({ stat }) => {
      const ask = { stat, statistic: 'nonfinite', mixed: true } as const;
      const total = await groupMoments(moments, { ...ask, by: [], points: POINTS });
      const step = total.step[total.nonFinite.findIndex(count => count !== 0)];
      if (step === undefined) {
        return [];
      }
      const at = await groupMoments(moments, { ...ask, by: ['name'], steps: [step, step] });
      const [name] = at.keys[at.group[at.nonFinite.findIndex(count => count !== 0)] ?? -1] ?? [];
      return [{ step, name: String(name ?? stat) }];
    })
  );
  return found.flat();
}
