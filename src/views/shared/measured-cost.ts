import type { Status } from '../../protocol/messages.generated';

/** What tracing costs, in per cent of the time of a step, with its 95 % interval. */
export interface IMeasuredCost {
  readonly percent: number;
  readonly low: number;
  readonly high: number;
}

/** The comparison of traced and untraced steps where there is one, else the tracer's own count. */
export function measuredCost(status: Status | null): IMeasuredCost | null {
  const { percent, low, high } = status?.budget ?? {};
  return percent !== undefined && low !== undefined && high !== undefined
    ? { percent, low, high }
    : (status?.overhead ?? null);
}

/** Half of the interval. */
export const halfOf = ({ low, high }: IMeasuredCost): number => Math.max(0, (high - low) / 2);
