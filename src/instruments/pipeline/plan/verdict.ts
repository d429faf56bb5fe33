import type { IPlanned } from './planned';

/** Whether another schedule is worth it. */
export interface IVerdict {
  readonly change: 'switch' | 'keep';
  /** The schedule that should run. */
  readonly schedule: string;
  /** By how much the other one's step is longer than the current one's, in per cent: negative where it is shorter. */
  readonly percent: number;
  /** Half of the 95 % interval of `percent`, from the jitter of both. */
  readonly plusMinus: number;
  /** By how much the other one's fullest stage holds more. */
  readonly memoryBytes: number;
}

/**
 * Compare the best schedule with the one that runs.
 *
 * It says `switch` where the step is shorter by more than chance: by more than the half interval of the difference, and by at least 0.5 %.
 */
export function verdict(best: IPlanned, current: IPlanned): IVerdict {
  const share = 100 / current.stepMs;
  const half = ({ lowMs, highMs }: IPlanned): number => (highMs - lowMs) / 2;
  const percent = (best.stepMs - current.stepMs) * share;
  const plusMinus = Math.sqrt(half(best) ** 2 + half(current) ** 2) * share;
  const most = ({ peakBytes }: IPlanned): number =>
    peakBytes.reduce((peak, bytes) => Math.max(peak, bytes), 0);
  const memoryBytes = most(best) - most(current);
  const switches =
    best.schedule !== current.schedule && best.overMemoryBytes === 0 && percent < -Math.max(0.5, plusMinus);
  return {
    change: switches ? 'switch' : 'keep',
    schedule: switches ? best.schedule : current.schedule,
    percent,
    plusMinus,
    memoryBytes
  };
}
