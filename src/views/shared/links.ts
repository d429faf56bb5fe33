import type { StepRange } from '../../store/run-link';
import type { IMark } from './content';
import type { ITrace } from './painting';

/** An interval of the x axis in its own unit, low to high. */
export type Span = readonly [number, number];

/** How a view whose x axis is made of steps takes part in choosing them. */
export interface IStepAxis {
  /** The steps that lie within a span of the axis, or null when none does. */
  stepsIn(span: Span): StepRange | null;
  /** Where a range of steps lies on the axis. */
  spanOf(steps: StepRange): Span;
}

/** First and last of ascending steps; null where there is none. */
export function rangeOf(steps: ArrayLike<number>): StepRange | null {
  const [first, last] = [steps[0], steps[steps.length - 1]];
  return first === undefined || last === undefined ? null : [first, last];
}

/** What a view shows of something that another view points at. */
export interface ILinkedMarks {
  readonly marks: readonly IMark[];
  readonly traces?: readonly ITrace[];
}
